"""Wake-ups between processes on one SQLite file: soon, gathered while busy, and never in the way of an end."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from holdbeat.store.sqlite_neighbours import Doorbell


class Ear:
    """A neighbour that notes what it hears."""

    def __init__(self, path: str) -> None:
        self.heard: list[frozenset[str]] = []
        self._news = threading.Condition()
        self.bell = Doorbell(path, self._note)
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
    ear, mouth = Ear(path), Doorbell(path, lambda topics: None)
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
        mouth = Doorbell(path, lambda topics: None)
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
    mouth = Doorbell(path, lambda topics: None)
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
    mouth = Doorbell(path, lambda topics: None)
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
