"""What the documentation shows is true: its programs run, its sessions print what it says, its links lead somewhere."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, anchors_of, blocks_of, links_of, name_of, pages
from tests.docs.session import Session, steps_of

PORT = "7450"
PAGES = pages()
TESTED = [page for page in PAGES if any(block.is_tested for block in blocks_of(page))]


@pytest.fixture
def port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", TESTED, ids=name_of)
def test_what_a_page_shows_is_what_happens(
    page: Path, port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDBEAT_PORT", port)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, Any] = {"__name__": "snippet"}
    session = Session(tmp_path, int(port))
    try:
        for block in blocks_of(page):
            text = block.text.replace(PORT, port)
            place = f"{name_of(page)}:{block.line}"
            if block.file is not None:
                (tmp_path / block.file).write_text(text, encoding="utf-8")
            if not block.is_tested:
                continue
            if block.language == "python":
                exec(compile("\n" * block.line + text, str(page), "exec"), names)
            else:
                assert block.language == "console", f"{place}: only python and console can be tested"
                for step in steps_of(text):
                    wrong = session.check(step)
                    assert wrong is None, f"{place}: {wrong}"
    finally:
        session.close()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_block_can_be_read_by_python(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "python" and page.name != "architecture.md":
            compile(block.text, f"{name_of(page)}:{block.line}", "exec")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_link_between_pages_is_dead(page: Path) -> None:
    dead = []
    for link in links_of(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_speaks_of_the_machine_it_was_written_on(page: Path) -> None:
    assert not re.search(r"/(home|Users)/\w+/|/root/", page.read_text(encoding="utf-8"))


def test_every_page_of_the_documentation_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        for link in links_of(page):
            if not re.match(r"[a-z]+:", link):
                target = (page.parent / link.partition("#")[0]).resolve()
                waiting += sorted(target.glob("*.md")) if target.is_dir() else [target]
    assert set(PAGES) - reached == set()


def test_no_advice_about_resources_takes_the_slots_of_http_calls_away() -> None:
    """A list replaces the default list: one without http would leave http calls one slot."""
    advised = []
    for page in [*PAGES, *(ROOT / "examples").glob("*.py"), *(ROOT / "deploy").rglob("*.toml")]:
        for item in re.findall(r"resources:[\w-]+=[\w=,-]+", page.read_text(encoding="utf-8")):
            advised.append(item)
            assert "http=" in item, f"{name_of(page)}: {item}"
    assert len(advised) > 4
