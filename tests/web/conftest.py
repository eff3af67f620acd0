"""A real browser on a real server. A page that complains in its console, or breaks the policy of its content, fails
the test that looked at it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from holdbeat.web.pages import install
from tests.api.serving import Served

ROOT = Path(__file__).parents[2]
ARTIFACTS = ROOT / "test-artifacts"
FLAGS = (
    "--no-sandbox",
    "--headless=new",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)

expect.set_options(timeout=20_000)
"""Milliseconds. A live update on a busy machine may take more than the default of five seconds."""


@cache
def chromium() -> str:
    result = subprocess.run(
        ["bash", str(ROOT / "tools" / "ensure_chromium.sh")], capture_output=True, text=True, check=True
    )
    return result.stdout.strip().splitlines()[-1]


def serve_at(url: str, **settings: object) -> Served:
    """A server with the dashboard."""
    served = Served(url, **settings)  # type: ignore[arg-type]
    install(served.server.app, served.server.context)  # type: ignore[arg-type]
    return served


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for the tests of this folder. Not for all: its event loop would be in the way of asyncio tests."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An open server that the tests of one module share."""
    server = serve_at(f"sqlite:///{tmp_path_factory.mktemp('store') / 'holdbeat.db'}")
    yield server
    server.stop()


class Complaints(list[str]):
    """What pages said that no page should say."""

    def listen_to(self, page: Page) -> None:
        page.on("console", lambda value: self.append(value.text) if value.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.append(str(error)))


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    context.set_default_timeout(15_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, complaints: Complaints) -> Iterator[Page]:
    page = context.new_page()
    complaints.listen_to(page)
    yield page
    assert complaints == []


def keep(page: Page, name: str) -> None:
    """Keeps a picture of the page for people."""
    ARTIFACTS.mkdir(exist_ok=True)
    page.screenshot(path=str(ARTIFACTS / f"{name}.png"), full_page=True)


def choose(page: Page, action: str) -> None:
    """Opens the menu at the head of the page and clicks on one of its actions."""
    page.locator(".menu > summary").click()
    page.locator(".menu").get_by_role("button", name=action).click()
