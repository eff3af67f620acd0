"""RET-04: a person asks for another try."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, NotFound
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import JobStatus, RetryPolicy
from holdbeat.domain.run import ErrorKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.bulk import retry_where
from holdbeat.store.jobs.edit_job import change_job
from holdbeat.store.jobs.manual_retry import retry_job
from tests.conformance.acts import (
    cancel,
    claim_all,
    claim_one,
    complete,
    enqueue_one,
    events_of,
    fail,
    ids_of,
    job_of_claim,
    look,
    look_at_group,
    make_group,
    skip,
)

ONCE = RetryPolicy(max_attempts=0)


@pytest.mark.rule("RET-04")
def test_a_failed_run_is_retried_from_its_snapshot_at_the_end_of_its_priority(store: PersistenceAdapter) -> None:
    job = enqueue_one(
        store, params={"n": 1}, priority=4, labels={"a": "b"}, retry_policy=ONCE, idempotency_key="k", request_hash="h"
    )
    taken = claim_one(store)
    fail(store, taken)
    waiting = enqueue_one(store, priority=4)
    retry = store.write_sync(retry_job, job.id)
    assert (retry.params, retry.priority, retry.labels, retry.retry_policy) == ({"n": 1}, 4, {"a": "b"}, ONCE)
    assert (retry.retry_of, retry.retry_kind, retry.attempt) == (job.id, "manual", 1)
    assert (retry.idempotency_key, retry.not_before, retry.run) == (None, None, None)
    assert look(store, job.id).manual_retries == (retry.id,)
    assert look(store, job.id).retried_by is None
    assert len(events_of(store, "retry.created")) == 1
    assert ids_of(claim_all(store)) == [waiting.id, retry.id]


@pytest.mark.rule("RET-04")
def test_a_skipped_run_and_a_job_cancelled_before_it_ran_can_be_retried_any_number_of_times(
    store: PersistenceAdapter,
) -> None:
    skipped = enqueue_one(store)
    skip(store, claim_one(store))
    cancelled = enqueue_one(store)
    cancel(store, cancelled.id)
    for job in (skipped, cancelled):
        made = [store.write_sync(retry_job, job.id).id for _ in range(3)]
        assert look(store, job.id).manual_retries == tuple(made)


@pytest.mark.rule("RET-04")
def test_a_job_whose_automatic_retry_waits_can_still_be_retried_by_hand(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    fail(store, claim_one(store))
    automatic = look(store, job.id).retried_by
    retry = store.write_sync(retry_job, job.id)
    assert look(store, job.id).retried_by == automatic != retry.id


@pytest.mark.rule("RET-04", "CAN-04")
def test_a_cancelled_job_can_be_retried_once_its_handler_has_ended(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    taken = claim_one(store)
    cancel(store, job.id)
    with pytest.raises(Conflict) as refusal:
        store.write_sync(retry_job, job.id)
    assert refusal.value.code == "not_finished"
    fail(store, taken, ErrorKind.CANCELLED)
    assert store.write_sync(retry_job, job.id).status is JobStatus.QUEUED


@pytest.mark.rule("RET-04")
def test_what_is_completed_or_unfinished_is_refused(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    with pytest.raises(Conflict) as refusal:
        store.write_sync(retry_job, job.id)
    assert refusal.value.code == "not_finished"
    taken = claim_one(store)
    with pytest.raises(Conflict):
        store.write_sync(retry_job, job.id)
    complete(store, taken)
    with pytest.raises(Conflict) as refusal:
        store.write_sync(retry_job, job.id)
    assert refusal.value.code == "already_completed"
    with pytest.raises(NotFound):
        store.write_sync(retry_job, "nobody")
    assert events_of(store, "retry.created") == []


@pytest.mark.rule("RET-04", "GRP-04")
def test_a_manual_retry_leaves_the_group(store: PersistenceAdapter) -> None:
    group, (first, _) = make_group(store, GroupMode.SEQUENTIAL, OnFailure.STOP, 2)
    fail(store, claim_one(store), ErrorKind.REJECTED)
    retry = store.write_sync(retry_job, first.id)
    assert (retry.group_id, retry.sequence) == (None, None)
    assert len(look_at_group(store, group.id)[1]) == 2


@pytest.mark.rule("RET-04", "DEC-007")
def test_the_automatic_count_goes_on_from_the_root(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=1, base_delay_s=1))
    fail(store, claim_one(store))
    clock.advance(1)
    second = claim_one(store)
    fail(store, second)
    tip = look(store, job_of_claim(second).id)
    assert tip.permanently_failed
    retry = store.write_sync(retry_job, tip.id)
    assert retry.attempt == 2
    fail(store, claim_one(store))
    assert look(store, retry.id).permanently_failed
    assert look(store, retry.id).retried_by is None
    assert look(store, job.id).created_at + timedelta(seconds=1) == clock.now()


@pytest.mark.rule("RET-04")
def test_a_manual_retry_has_the_params_of_the_first_of_the_chain_not_those_of_a_changed_retry(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    first = enqueue_one(store, params={"v": 1}, retry_policy=RetryPolicy(max_attempts=1, base_delay_s=0))
    fail(store, claim_one(store))
    second = look(store, first.id).retried_by or ""
    store.write_sync(change_job, second, {"params": {"v": 2}})
    fail(store, claim_one(store))
    assert look(store, second).params == {"v": 2}
    by_hand = store.write_sync(retry_job, second)
    assert by_hand.params == {"v": 1}
    assert store.write_sync(retry_where, {"ids": [second]}).changed == 1
    store.write_sync(change_job, by_hand.id, {"params": {"v": 3}})
    taken = claim_one(store)
    assert ids_of([taken]) == [by_hand.id]
    fail(store, taken)
    assert store.write_sync(retry_job, by_hand.id).params == {"v": 3}
