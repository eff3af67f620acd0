"""A database that turns read-only under a running store: it is waited for, and then refused loudly (OPS-03)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from holdbeat.domain.errors import StoreDown, StoreRefused
from holdbeat.domain.job import NewJob
from holdbeat.store.postgres.database import Link
from holdbeat.store.postgres.lost_commit import was_committed
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.queue.enqueue import enqueue
from tests.conformance.acts import OpenStore, count, enqueue_all, enqueue_one, open_at
from tests.conformance.races import in_background
from tests.postgres import PostgresServer

pytestmark = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


@contextmanager
def only_reads(url: str) -> Iterator[None]:
    """Sessions that begin in the block only read, and no others go on."""
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'.encode())
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            [name],
        )
        try:
            yield
        finally:
            connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only'.encode())


def opened(open_store: OpenStore, reconnect_s: float) -> PostgresStore:
    store = open_store()
    assert isinstance(store, PostgresStore)
    enqueue_one(store)
    store.reconnect_s = reconnect_s
    return store


@pytest.mark.rule("OPS-03")
def test_a_database_that_only_reads_for_too_long_refuses_the_store_loudly(open_store: OpenStore) -> None:
    store = opened(open_store, 0.2)
    topic_sets: list[frozenset[str]] = []
    store.listen(topic_sets.append)
    with only_reads(open_store.url):
        with pytest.raises(StoreRefused, match=r"The database only reads .* Nothing more is written") as refused:
            enqueue_all(store, [NewJob("noop"), NewJob("noop")])
        assert refused.value.code == "store_read_only"
        with pytest.raises(StoreRefused):
            store.read_sync(lambda tx: tx.one("SELECT 1"))
    assert frozenset({"refused"}) in topic_sets
    assert count(open_store(), "jobs") == 1


@pytest.mark.rule("OPS-03")
@pytest.mark.asyncio
async def test_a_single_job_from_an_event_loop_is_refused_in_the_same_words(open_store: OpenStore) -> None:
    store = opened(open_store, 0.2)
    await store.write(enqueue, [NewJob("noop")])
    with only_reads(open_store.url), pytest.raises(StoreRefused, match="The database only reads"):
        await asyncio.wait_for(store.write(enqueue, [NewJob("noop")]), 60)
    assert count(open_store(), "jobs") == 2


@pytest.mark.rule("OPS-03", "DEC-008")
def test_a_database_that_writes_again_in_time_is_waited_for(open_store: OpenStore) -> None:
    store = opened(open_store, 60)
    with only_reads(open_store.url):
        waiting = in_background(lambda: enqueue_one(store))
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
    waiting.result(60)
    assert count(store, "jobs") == 2
    assert store.refused is None


@pytest.mark.rule("OPS-03", "DEC-008")
def test_a_standby_is_waited_for_until_it_is_promoted_and_says_nothing_of_lost_commits(
    engine: str,
) -> None:
    with PostgresServer() as server:
        store = open_at(server.url())
        assert isinstance(store, PostgresStore)
        try:
            enqueue_one(store)
            with psycopg.connect(server.url()) as connection:
                row = connection.execute("SELECT pg_current_xact_id()::text").fetchone()
                assert row is not None
            server.become_standby()
            link = Link(server.url())
            with pytest.raises(StoreDown, match="a standby answers") as unknown:
                was_committed(link, row[0], [], store.clock, lambda: 0.1)
            assert unknown.value.code == "commit_unknown"
            link.close()
            store.reconnect_s = 60
            waiting = in_background(lambda: enqueue_one(store))
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute("SELECT pg_promote()")
            waiting.result(60)
            assert count(store, "jobs") == 2
            server.become_standby()
            store.reconnect_s = 0.2
            with pytest.raises(StoreRefused, match="The database only reads"):
                enqueue_one(store)
        finally:
            store.close()
