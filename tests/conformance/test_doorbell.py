"""Wake-ups between processes on one SQLite file: soon, gathered while busy, and never in the way of an end."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from holdbeat.store.sqlite.processes import Wakeups


class Ear:
    """A neighbour that notes what it hears."""

    def __init__(self, path: str) -> None:
        self.heard: list[frozenset[str]] = []
        self._news = threading.Condition()
        self.bell = Wakeups(path, self._note)
        self.bell.answer()

    def _note(self, topics: frozenset[str]) -> None:
        with self._news:
            self.heard.append(topics)
            self._news.notify()

    def has_heard(self, topics: set[str]) -> bool:
        with self._news:
            return self._news.wait_for(lambda: topics <= frozenset[str]().union(*self.heard), 10)


@pytest.mark.rule("LEASE-05")
def test_a_quiet_process_rings_at_once_and_a_busy_one_gathers_without_losing_a_topic(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    ear, mouth = Ear(path), Wakeups(path, lambda topics: None)
    mouth.ring({"first"})
    assert ear.has_heard({"first"})
    topics = {f"t{number}" for number in range(40)}
    for topic in sorted(topics):
        mouth.ring({topic})
    assert ear.has_heard(topics)
    assert len(ear.heard) < 1 + len(topics), "what came close together was told together"
    mouth.close()
    ear.bell.close()


@pytest.mark.rule("CON-003")
def test_a_bell_can_be_closed_at_any_moment_and_tells_what_was_left(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    ear = Ear(path)
    for number in range(300):
        mouth = Wakeups(path, lambda topics: None)
        said = {f"{number}-{part}" for part in range(number % 5)}
        for topic in said:
            mouth.ring({topic})
        closing = threading.Thread(target=mouth.close, daemon=True)
        closing.start()
        closing.join(10)
        assert not closing.is_alive()
        assert ear.has_heard(said)
    ear.bell.close()


@pytest.mark.rule("LEASE-05")
def test_a_neighbour_is_rung_however_soon_after_another_it_came(tmp_path: Path) -> None:
    """The folder's time of change has ticks of milliseconds: two who come in one tick leave one mark."""
    path = str(tmp_path / "store.db")
    mouth = Wakeups(path, lambda topics: None)
    first = Ear(path)
    mouth.ring({"first"})
    mark = os.stat(mouth._folder).st_mtime_ns
    second = Ear(path)
    os.utime(mouth._folder, ns=(mark, mark))
    mouth.ring({"second"})
    assert first.has_heard({"first", "second"})
    assert second.has_heard({"second"})
    for bell in (first.bell, second.bell, mouth):
        bell.close()


@pytest.mark.rule("LEASE-05")
def test_the_last_to_leave_takes_the_folder_away_and_who_comes_meanwhile_is_still_rung(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    mouth = Wakeups(path, lambda topics: None)
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            Ear(path).bell.close()

    others = threading.Thread(target=come_and_go)
    others.start()
    try:
        for number in range(200):
            ear = Ear(path)
            mouth.ring({str(number)})
            assert ear.has_heard({str(number)})
            ear.bell.close()
    finally:
        is_over.set()
        others.join()
        mouth.close()
    assert not Path(mouth._folder).exists()


def _strange(folder: Path, kind: str, precious: Path) -> None:
    """What somebody else could put where the bells of a store are looked for."""
    if kind == "a link to a folder of ours":
        folder.parent.mkdir(mode=0o700)
        folder.symlink_to(precious)
    elif kind == "a link above it":
        (precious / folder.name).mkdir(mode=0o700)
        (precious / "notes").rename(precious / folder.name / "notes")
        folder.parent.symlink_to(precious)
    else:
        folder.mkdir(mode=0o700, parents=True)
        (precious / "notes").rename(folder / "notes")
        os.chmod(folder if kind == "open to others" else folder.parent, 0o777)


@pytest.mark.rule("OPS-06")
@pytest.mark.parametrize("kind", ["a link to a folder of ours", "a link above it", "open to others", "open above it"])
def test_a_place_that_is_not_ours_alone_has_no_bell_and_nothing_there_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "notes").write_text("years of work")
    mouth = Wakeups(str(tmp_path / "store.db"), lambda topics: None)
    _strange(Path(mouth._folder), kind, precious)
    with caplog.at_level(logging.WARNING, "holdbeat.store"):
        for _ in range(3):
            mouth.ring({"work"})
    assert len(caplog.records) == 1 and "TMPDIR" in caplog.text
    if kind != "open above it":  # that one is ours, and closed to others as soon as somebody listens
        mouth.answer()
        assert mouth._socket is None
    mouth.close()
    (left,) = tmp_path.rglob("notes")
    assert left.read_text() == "years of work"


@pytest.mark.rule("OPS-06")
def test_only_a_dead_neighbours_socket_is_taken_away(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    ear, mouth = Ear(path), Wakeups(path, lambda topics: None)
    folder = Path(mouth._folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(folder / "dead"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(folder / "other"))
        (folder / "notes").write_text("years of work")
        (folder / "link").symlink_to(folder / "dead")
        mouth.ring({"work"})
        assert ear.has_heard({"work"})
        left = {entry.name for entry in folder.iterdir()}
    assert left - {Path(str(ear.bell._own)).name} == {"other", "notes", "link"}
    mouth.close()
    ear.bell.close()
    shutil.rmtree(folder)
