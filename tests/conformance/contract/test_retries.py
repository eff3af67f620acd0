"""Retries: how many, when, where they stand, and that the database itself allows only one of each."""

from __future__ import annotations

from datetime import timedelta

import apsw
import psycopg
import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import Job, RetryPolicy
from holdbeat.domain.run import ErrorKind
from holdbeat.store.adapter import PersistenceAdapter
from tests.conformance.acts import (
    OpenStore,
    change,
    claim_all,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_one,
    events_of,
    fail,
    ids_of,
    look,
    rows,
)


def retry_of(store: PersistenceAdapter, job: Job) -> Job:
    stored = look(store, job.id)
    assert stored.retried_by is not None
    return look(store, stored.retried_by)


@pytest.mark.rule("DEC-007", "RET-01")
def test_four_executions_with_delays_of_10_20_40_seconds_then_the_verdict(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    job = enqueue_one(store)
    for delay in (10, 20, 40):
        fail(store, claim_one(store))
        retry = retry_of(store, job)
        assert retry.not_before == clock.now() + timedelta(seconds=delay)
        assert (retry.retry_of, retry.retry_kind, retry.attempt) == (job.id, "auto", job.attempt + 1)
        assert not look(store, job.id).permanently_failed
        clock.advance(delay - 0.001)
        assert claim_all(store) == []
        clock.advance(0.001)
        job = retry
    fail(store, claim_one(store))
    tip = look(store, job.id)
    assert (tip.status, tip.permanently_failed, tip.retried_by) == ("FAILED", True, None)
    assert (count(store, "jobs"), count(store, "job_runs")) == (4, 4)
    clock.advance(10_000)
    assert claim_all(store) == []
    assert [event[0] for event in events_of(store, "retry.exhausted")] == [tip.id]


@pytest.mark.rule("DEC-007")
@pytest.mark.parametrize("kind", list(ErrorKind))
def test_what_follows_a_failure_depends_on_its_kind(
    store: PersistenceAdapter, clock: ManualClock, kind: ErrorKind
) -> None:
    job = enqueue_one(store)
    fail(store, claim_one(store), kind)
    stored = look(store, job.id)
    assert stored.run is not None
    assert (stored.status, stored.run.error_kind) == ("FAILED", kind)
    if kind in (ErrorKind.REJECTED, ErrorKind.CANCELLED):
        assert (stored.retried_by, stored.permanently_failed) == (None, True)
        return
    retry = retry_of(store, job)
    waits = {ErrorKind.INTERRUPTED: None, ErrorKind.THROTTLED: clock.now()}
    assert retry.not_before == waits.get(kind, clock.now() + timedelta(seconds=10))
    assert bool(claim_all(store)) is (kind in waits)


@pytest.mark.rule("DEC-007")
@pytest.mark.parametrize("kind", list(ErrorKind))
def test_with_max_attempts_0_nothing_is_tried_again(store: PersistenceAdapter, kind: ErrorKind) -> None:
    job = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=0))
    fail(store, claim_one(store), kind)
    assert look(store, job.id).permanently_failed
    assert count(store, "jobs") == 1


@pytest.mark.rule("DEC-007")
def test_interruptions_in_between_use_up_no_attempt(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store)
    kinds = [ErrorKind.INTERRUPTED, ErrorKind.ERROR, ErrorKind.INTERRUPTED, ErrorKind.LOST, ErrorKind.CRASH]
    kinds += [ErrorKind.INTERRUPTED, ErrorKind.TIMEOUT]
    for kind in kinds:
        fail(store, claim_one(store), kind)
        clock.advance(100)
    assert claim_all(store) == []
    assert rows(store, "SELECT count(*), max(attempt) FROM jobs") == [(7, 6)]
    assert count(store, "jobs", "retried_by IS NULL") == 1


@pytest.mark.rule("DEC-007")
def test_a_retry_that_succeeds_ends_the_chain(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store)
    fail(store, claim_one(store))
    clock.advance(10)
    complete(store, claim_one(store))
    assert (look(store, job.id).status, retry_of(store, job).status) == ("FAILED", "COMPLETED")
    assert not look(store, job.id).permanently_failed


@pytest.mark.rule("RET-02")
def test_a_retry_stands_where_its_original_stood(store: PersistenceAdapter, clock: ManualClock) -> None:
    first = enqueue_one(store, resource="gpu", priority=5, labels={"a": "b"}, params={"n": 1}, timeout_s=9)
    second = enqueue_one(store, resource="gpu", priority=5)
    fail(store, claim_one(store))
    retry = retry_of(store, first)
    clock.advance(10)
    assert ids_of(claim_some(store, 2)) == [retry.id, second.id]
    kept = ("type", "params", "priority", "position", "resource", "retry_policy", "timeout_s", "labels")
    assert all(getattr(retry, name) == getattr(first, name) for name in kept)


@pytest.mark.rule("QUE-01")
def test_a_retry_does_not_inherit_the_idempotency_key(store: PersistenceAdapter) -> None:
    job = enqueue_one(store, idempotency_key="key", request_hash="h")
    fail(store, claim_one(store))
    assert retry_of(store, job).idempotency_key is None
    assert enqueue_one(store, idempotency_key="key", request_hash="h").id == job.id


@pytest.mark.rule("RET-03")
def test_the_database_refuses_a_second_automatic_retry_of_one_job(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    fail(store, claim_one(store))
    other = enqueue_one(store)
    with pytest.raises((apsw.ConstraintError, psycopg.errors.UniqueViolation)):
        change(
            store, "UPDATE jobs SET retry_of = :id, retry_kind = 'auto' WHERE id = :other", id=job.id, other=other.id
        )
    assert count(store, "jobs", "retry_kind = 'auto'") == 1


@pytest.mark.rule("RET-03")
def test_the_end_the_retry_and_the_log_are_one_transaction(open_store: OpenStore) -> None:
    """If the retry cannot be stored, the run has not ended either."""
    store = open_store()
    job = enqueue_one(store)
    taken = claim_one(store)
    blocker = enqueue_one(store)
    change(store, "UPDATE jobs SET retry_of = :id, retry_kind = 'auto' WHERE id = :b", id=job.id, b=blocker.id)
    events_before = count(store, "events")
    with pytest.raises((apsw.ConstraintError, psycopg.errors.UniqueViolation)):
        fail(store, taken)
    stored = look(store, job.id)
    assert stored.run is not None
    assert (stored.status, stored.run.status, count(store, "leases")) == ("RUNNING", None, 1)
    assert count(store, "events") == events_before
