"""Draws the pictures of the README: `make pictures`.

The work of the demo on a store with an hour behind it. The hour is made by the same verbs, with the clock in hand.
"""

from __future__ import annotations

import math
import random
import signal
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
from playwright.sync_api import Page, sync_playwright

from holdbeat.demo import CONCURRENCY, fill, flaky_page, free_port, make_app
from holdbeat.domain.clock import ManualClock, SystemClock
from holdbeat.domain.job import NewJob, RetryPolicy
from holdbeat.domain.run import ErrorKind
from holdbeat.settings import Settings
from holdbeat.wiring import Composition
from tests.conformance.acts import claim_some, complete, enqueue_all, fail, job_of_claim, open_at, skip
from tests.waiting import eventually
from tests.web.conftest import FLAGS, ROOT, chromium

DOCS = ROOT / "docs"
WORK_WITHIN_S = 180
"""Within this time the server has the work that a picture is to show."""
KINDS = {"crawl": "default", "embed": "default", "newsletter": "mail", "story": "gpu"}
"""Job types and their resources."""
MOODY = "ConnectionError: 421 4.7.0 the mail server asked us to come back later"


def _job(dice: random.Random, again: RetryPolicy) -> NewJob:
    kind = dice.choice(list(KINDS))
    title = f"{kind.capitalize()} site-{dice.randint(1, 9)}.example"
    return NewJob(kind, resource=KINDS[kind], retry_policy=again, title=title)


def live_through_an_hour(url: str) -> None:
    dice = random.Random(7)
    clock = ManualClock(SystemClock().now() - timedelta(minutes=59, seconds=30))
    store = open_at(url, concurrency=CONCURRENCY, clock=clock)
    has_failed = False
    for minute in range(59):
        wave = 6 + round(5 * math.sin(minute / 7)) + dice.randint(0, 4)
        again = RetryPolicy(max_attempts=9, base_delay_s=0)
        enqueue_all(store, [_job(dice, again) for _ in range(wave)])
        left = 58.0
        while claims := claim_some(store, dice.randint(2, 5), worker="studio", types=list(KINDS)):
            spent = min(left / 2, dice.uniform(2, 3 + wave))
            clock.advance(spent)
            left -= spent
            for taken in claims:
                chance = dice.random()
                if minute == 52 and not has_failed and job_of_claim(taken).type == "crawl":
                    has_failed = True
                    fail(store, taken, ErrorKind.REJECTED, "PermanentFailure: robots.txt of old.example forbids it")
                elif chance < 0.05:
                    fail(store, taken, ErrorKind.ERROR, MOODY)
                elif chance < 0.08:
                    skip(store, taken)
                else:
                    complete(store, taken)
        clock.advance(left + 2)
    store.close()


def serve(url: str, port: int) -> int:
    settings = Settings(store=url, port=port, slots=8, http_slots=4, concurrency=CONCURRENCY, shutdown_grace_s=0.5)
    app = make_app(settings, pace=5, chance=random.Random(11))
    with flaky_page() as page_url:
        fill(app, page_url)
        return Composition().serve(app)


def draw() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'holdbeat.db'}"
        live_through_an_hour(url)
        port = free_port(0)
        server = subprocess.Popen([sys.executable, "-m", "tests.web.picture", url, str(port)])
        address = f"http://127.0.0.1:{port}"
        try:
            eventually(lambda: answers(address), 60)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
                # A larger page on 1280 by 800 points, so that the charts are in the picture too.
                page = browser.new_page(
                    viewport={"width": 1500, "height": 938}, device_scale_factor=1280 / 1500, color_scheme="light"
                )
                eventually(lambda: is_busy(address), WORK_WITHIN_S)
                _save(page, "dashboard", f"{address}/")
                review = eventually(lambda: _waiting_review(address), WORK_WITHIN_S)
                _save(page, "timeline", f"{address}/ui/timeline?zoom=15m")
                _save(page, "job", f"{address}/ui/jobs/{review['id']}")
                browser.close()
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(20)


def _save(page: Page, name: str, url: str) -> None:
    page.goto(url)
    page.locator("[data-pulse].live").wait_for()
    page.screenshot(path=str(DOCS / f"{name}.png"), animations="disabled")


def _jobs(address: str, **query: str) -> list[dict[str, Any]]:
    return list(httpx2.get(f"{address}/api/jobs", params=query, trust_env=False).json()["items"])


def is_busy(address: str) -> bool:
    """Whether several jobs run, several wait, and a direct request waits for its slot."""
    reservations = httpx2.get(f"{address}/api/reservations", params={"status": "ACTIVE"}, trust_env=False).json()
    return (
        len(_jobs(address, status="RUNNING")) >= 4
        and len(_jobs(address, status="QUEUED")) >= 5
        and any(request["granted_at"] is None for request in reservations["items"])
    )


def _waiting_review(address: str) -> dict[str, Any] | None:
    """The job that waits for several others, once one of those runs."""
    reviews = _jobs(address, type="review", status="QUEUED")
    books = [job for job in _jobs(address, type="book", status="RUNNING") if job["title"] == "Book: lighthouses"]
    return reviews[0] if reviews and books else None


def answers(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/healthz", trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(serve(sys.argv[1], int(sys.argv[2])))
    draw()
