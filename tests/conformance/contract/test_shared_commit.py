"""Callers that wait at the same time share a commit, but never each other's failure."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from holdbeat.domain.errors import Conflict
from holdbeat.domain.job import NewJob
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.sqlite.store import SqliteStore
from holdbeat.store.transaction import Transaction
from holdbeat.store.work import Work
from tests.conformance.acts import OpenStore, change, count, enqueue_one, rows
from tests.conformance.races import HeldOpen

WRITERS = 4
"""No store has more threads that write."""


def nothing(tx: Transaction) -> None:
    """A unit of work that only takes up a writer."""


@contextlib.contextmanager
def all_writers_busy(store: PersistenceAdapter) -> Any:
    """Whatever is handed in meanwhile has to wait, and is found waiting together."""
    with contextlib.ExitStack() as stack:
        for _ in range(1 if isinstance(store, SqliteStore) else WRITERS):
            stack.enter_context(HeldOpen(store, nothing))
        yield


def hand_in(store: PersistenceAdapter, verb: Any, *arguments: Any) -> Future[Any]:
    work = Work(verb, arguments, {})
    assert work.future is not None
    store.submit(work, read_only=False)
    return work.future


@pytest.mark.rule("DEC-008", "DEC-002")
def test_sixty_four_waiting_callers_share_their_commits(store: PersistenceAdapter) -> None:
    commits: list[int] = []
    with all_writers_busy(store):
        if isinstance(store, SqliteStore):
            store._file.writer.set_wal_hook(lambda *match: commits.append(match[-1]) or 0)  # type: ignore[func-returns-value]
        futures = [hand_in(store, enqueue, [NewJob("a", {"n": n})]) for n in range(64)]
    ids = {future.result(20).jobs[0].id for future in futures}
    assert len(ids) == 64
    if isinstance(store, SqliteStore):
        # One for the unit that was in the way, one for all of them.
        assert len(commits) <= 2
    else:
        assert int(rows(store, "SELECT count(DISTINCT xmin::text) FROM jobs")[0][0]) <= WRITERS
    positions = [row[0] for row in rows(store, "SELECT position FROM jobs ORDER BY id")]
    assert positions == sorted(set(positions))


@pytest.mark.rule("QUE-01", "QUE-02")
def test_a_conflict_refuses_only_the_caller_that_caused_it(store: PersistenceAdapter) -> None:
    enqueue_one(store, idempotency_key="key", request_hash="one")
    with all_writers_busy(store):
        futures = [
            hand_in(store, enqueue, [NewJob("a"), NewJob("a", idempotency_key="key", request_hash=text)])
            for text in ("one", "other", "one", "other")
        ]
    refused = [isinstance(future.exception(20), Conflict) for future in futures]
    assert refused == [False, True, False, True]
    assert count(store, "jobs") == 3


@pytest.mark.rule("QUE-02")
def test_a_request_that_cannot_be_stored_fails_alone(store: PersistenceAdapter) -> None:
    with all_writers_busy(store):
        futures = [
            hand_in(store, enqueue, [NewJob("a"), NewJob("a", params)])
            for params in ({"n": 1}, {"n": object()}, {"n": 3})
        ]
    assert [future.exception(20) is None for future in futures] == [True, False, True]
    assert count(store, "jobs") == 4
    assert enqueue_one(store).status == "QUEUED"


@pytest.mark.rule("DEC-008")
def test_a_verb_that_raises_stores_nothing_while_others_of_its_batch_are_stored(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)

    def write_and_raise(tx: Transaction) -> None:
        tx.execute("UPDATE jobs SET priority = 77")
        tx.record("job.changed", job_id=job.id)
        raise ValueError("changed my mind")

    with all_writers_busy(store):
        good = hand_in(store, enqueue, [NewJob("b")])
        bad = hand_in(store, write_and_raise)
        cancelled = hand_in(store, cancel_job, job.id)
    assert isinstance(bad.exception(20), ValueError)
    assert good.result(20).any_new
    assert cancelled.result(20).status == "CANCELLED"
    assert count(store, "jobs", "priority = 77") == 0
    assert count(store, "events", "name = 'job.changed'") == 0


@pytest.mark.rule("DEC-008")
def test_a_reader_never_sees_half_of_a_transaction(open_store: OpenStore) -> None:
    store = open_store()
    enqueue_one(store)
    stop = threading.Event()

    def look_on() -> set[tuple[Any, ...]]:
        seen: set[tuple[Any, ...]] = set()
        while not stop.is_set():
            seen |= set(rows(store, "SELECT min(priority) = max(priority), count(*) > 0 FROM jobs"))
        return seen

    collected: list[set[tuple[Any, ...]]] = []
    watcher = threading.Thread(target=lambda: collected.append(look_on()))
    watcher.start()
    for number in range(30):
        store.write_sync(enqueue, [NewJob("a", priority=number) for _ in range(3)])
        change(store, "UPDATE jobs SET priority = :number", number=number + 1)
    stop.set()
    watcher.join()
    assert all(row[1] for row in collected[0])


@pytest.mark.rule("DEC-008")
def test_readers_do_not_wait_for_a_writer(open_store: OpenStore) -> None:
    store = open_store()
    enqueue_one(store)
    with HeldOpen(store, enqueue, [NewJob("a")]):
        assert count(store, "jobs") == 1
    assert count(store, "jobs") == 2
