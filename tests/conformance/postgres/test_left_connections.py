"""Every connection is closed by whoever made it, and none is left to the garbage collector (OPS-06)."""

from __future__ import annotations

import contextlib
import gc
import threading
import warnings
from collections.abc import Iterator
from typing import Any, Self

import psycopg
import pytest

from holdbeat.store.postgres import database, loop_link
from holdbeat.store.postgres import store as postgres_store
from holdbeat.store.postgres.joining import callers_connection
from holdbeat.store.postgres.loop_link import LoopLink
from holdbeat.store.postgres.pipeline import StatementPipeline
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import open_at
from tests.waiting import eventually

pytestmark = [pytest.mark.parametrize("engine", ["postgres"], indirect=True), pytest.mark.rule("OPS-06")]


@contextlib.contextmanager
def no_connection_left() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(warning.message) for warning in found if "still open" in str(warning.message)] == []


def test_a_connection_whose_first_question_is_refused_is_closed(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Any, *_: Any, **__: Any) -> None:
        # What the server says to a session that it ends, before it closes the line.
        raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")

    monkeypatch.setattr(database.StoreConnection, "execute", refused)
    with no_connection_left(), pytest.raises(psycopg.errors.AdminShutdown):
        database.connect(store_url)


def test_a_connection_of_a_caller_whose_commit_is_refused_is_closed(store_url: str) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation), callers_connection(store_url) as connection:
        connection.execute("CREATE TABLE numbers (number int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        connection.execute("INSERT INTO numbers VALUES (1), (1)")
    assert connection.closed


def test_a_link_that_is_closed_while_its_thread_has_just_connected_leaves_nothing(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = LoopLink(store_url)

    class ClosedMeanwhile(StatementPipeline):
        def __enter__(self) -> Self:
            link.close()
            return super().__enter__()

    monkeypatch.setattr(loop_link, "StatementPipeline", ClosedMeanwhile)
    assert link.reserve() is None
    eventually(lambda: not link._is_connecting and not link._in_use.locked())
    assert link._connection is not None and link._connection.closed


def test_a_link_that_is_closed_while_its_user_gives_it_back_leaves_nothing(store_url: str) -> None:
    link = LoopLink(store_url)
    link.reserve()
    connection = eventually(link.reserve)

    class ClosedBeforeRelease:
        """The lock, with a thread that closes the link just before it is released."""

        def __init__(self, lock: threading.Lock) -> None:
            self.acquire = lock.acquire
            self._lock = lock

        def release(self) -> None:
            if not link._is_closed:
                link.close()
            self._lock.release()

    link._in_use = ClosedBeforeRelease(link._in_use)  # type: ignore[assignment]
    link.release()
    assert connection.closed


def test_a_caller_that_writes_for_longer_than_the_store_waits_to_be_closed_closes_its_connection(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "CLOSE_WITHIN_S", 0.1)
    store = open_at(store_url)
    assert isinstance(store, PostgresStore)
    begun, may_end = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        tx.rows("SELECT 1")
        begun.set()
        may_end.wait(30)

    caller = threading.Thread(target=store.write_sync, args=(slow,))
    caller.start()
    assert begun.wait(30)
    store.close()
    connection = store._callers_link._connection
    assert connection is not None and not connection.closed
    may_end.set()
    caller.join()
    assert connection.closed
