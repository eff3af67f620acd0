"""What tests of the engine share: waiting for what must come, and a store that is really out of reach for a while."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import apsw
import psycopg
import pytest

from holdbeat.domain.job import Job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.event_log import events_of_job, newest_events
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.sqlite.store import SqliteStore
from tests.postgres import PostgresServer

PATIENCE_S = 30.0


async def until(holds: Callable[[], Any], within_s: float = PATIENCE_S) -> Any:
    """Waits until something is so, and returns what was found."""
    give_up = time.monotonic() + within_s
    while not (result := holds()):
        assert time.monotonic() < give_up, "it did not come to pass"
        await asyncio.sleep(0.01)
    return result


def rows(store: PersistenceAdapter, sql: str, /, **params: Any) -> list[tuple[Any, ...]]:
    return store.read_sync(lambda tx: tx.rows(sql, **params))


def value(store: PersistenceAdapter, sql: str, /, **params: Any) -> Any:
    return rows(store, sql, **params)[0][0]


def job(store: PersistenceAdapter, job_id: str) -> Job:
    return store.read_sync(load_job, job_id)


def event_names(store: PersistenceAdapter, job_id: str | None = None) -> list[str]:
    if job_id is None:
        return [event.name for event in reversed(store.read_sync(newest_events, None, 1_000_000))]
    return [entry.event.name for entry in store.read_sync(events_of_job, job_id, 1_000_000)]


def fail_writes(store: PersistenceAdapter, table: str, when: str = "1 = 1", *, at: str = "UPDATE") -> None:
    """From now on the engine underneath fails, with an error of its own kind, when it is to write such a row."""
    if isinstance(store, SqliteStore):
        trigger = (
            f"CREATE TRIGGER fail_writes_{table} BEFORE {at} ON {table} WHEN {when} "
            "BEGIN SELECT RAISE(ABORT, 'the engine fails'); END"
        )
        store.write_sync(lambda tx: tx.execute(trigger))
        return
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION fail_writes() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN RAISE EXCEPTION ''the engine fails'' USING ERRCODE = ''XX000''; END'"
        )
        connection.execute(
            f"CREATE TRIGGER fail_writes_{table} BEFORE {at} ON {table} FOR EACH ROW WHEN ({when}) "
            "EXECUTE FUNCTION fail_writes()".encode()
        )


def stop_failing_writes(store: PersistenceAdapter, table: str) -> None:
    """Ends what `fail_writes` began."""
    if isinstance(store, SqliteStore):
        store.write_sync(lambda tx: tx.execute(f"DROP TRIGGER fail_writes_{table}"))
        return
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute(f"DROP TRIGGER fail_writes_{table} ON {table}".encode())
        connection.execute("DROP FUNCTION fail_writes()")


class Outage:
    """Takes the store of a test away and gives it back: a locked file, or a server that is stopped."""

    def __init__(self, store: PersistenceAdapter, request: pytest.FixtureRequest, monkeypatch: Any) -> None:
        self._store = store
        self._server: PostgresServer | None = None
        self._lock: apsw.Connection | None = None
        if isinstance(store, SqliteStore):
            # Impatient, so that a test need not wait ten seconds for a refusal.
            store._file.writer.set_busy_timeout(50)
        else:
            monkeypatch.setattr(store, "reconnect_s", 0.2)
            self._server = request.getfixturevalue("postgres_server")

    def begin(self) -> None:
        if self._server is not None:
            self._server.stop("immediate")
            return
        self._lock = apsw.Connection(self._store.url.removeprefix("sqlite:///"))
        self._lock.set_busy_timeout(5000)
        self._lock.execute("BEGIN EXCLUSIVE")

    def end(self) -> None:
        if self._server is not None:
            self._server.start()
        elif self._lock is not None:
            self._lock.execute("ROLLBACK")
            self._lock.close()
            self._lock = None

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self.end()
