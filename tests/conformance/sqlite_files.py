"""SQLite files for tests: one with some history, and how to open it."""

from __future__ import annotations

from pathlib import Path

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import NewJob
from holdbeat.store.sqlite.store import SqliteStore
from tests.conformance.acts import claim_all, complete, enqueue_all, open_at


def opened(path: Path, *, create: bool = True) -> SqliteStore:
    store = open_at(f"sqlite:///{path}", clock=ManualClock(), create=create)
    assert isinstance(store, SqliteStore)
    return store


def file_with_history(place: Path) -> Path:
    """A store with some history, closed."""
    store = opened(place)
    enqueue_all(store, [NewJob("a", {"text": "x" * 200, "n": n}) for n in range(400)])
    for taken in claim_all(store)[:20]:
        complete(store, taken)
    store.close()
    assert not Path(f"{place}-wal").exists()
    return place
