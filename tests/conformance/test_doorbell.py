"""Wake-ups between processes on one SQLite file: soon, gathered while busy, and never in the way of an end."""

from __future__ import annotations

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
