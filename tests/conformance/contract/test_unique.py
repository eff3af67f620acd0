"""Unique keys: of jobs with one key at most one waits, or is unfinished, and the database holds it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import apsw
import psycopg
import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, Invalid
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import Job, RetryPolicy
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.domain.submission import Submission
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.steps import StepEntry, keep_step
from holdbeat.store.jobs.bulk import retry_where
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.jobs.submit import submit, submit_group
from holdbeat.store.queue.enqueue import Enqueued
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.running.settle import settle
from tests.conformance.acts import (
    OpenStore,
    cancel,
    change,
    claim_one,
    complete,
    count,
    enqueue_one,
    fail,
    job_of_claim,
    look,
    settle_as,
    settlement,
)
from tests.conformance.races import HeldOpen, in_background, together

SOON = {"max_attempts": 3, "base_delay_s": 0}


@pytest.fixture(autouse=True)
def types(store: PersistenceAdapter) -> None:
    store.write_sync(announce, [AnnouncedType("noop")])


def request(**fields: Any) -> Submission:
    return Submission.read({"type": "noop", "unique_key": "k", "retry_policy": SOON, **fields})


def send_all(store: PersistenceAdapter, **fields: Any) -> Enqueued:
    return store.write_sync(submit, [request(**fields)])


def send(store: PersistenceAdapter, **fields: Any) -> Job:
    return send_all(store, **fields).jobs[0]


@pytest.mark.rule("QUE-08")
def test_a_second_job_with_the_key_is_the_first_one_until_it_has_ended(store: PersistenceAdapter) -> None:
    first = send(store)
    again = send_all(store, params={"other": 1})
    assert ([job.id for job in again.jobs], again.known) == ([first.id], {first.id})
    taken = claim_one(store)
    assert send(store).id == first.id
    complete(store, taken)
    assert send(store).id != first.id


@pytest.mark.rule("QUE-08")
def test_a_key_that_is_held_while_queued_is_free_when_the_job_starts(store: PersistenceAdapter) -> None:
    first = send(store, unique_while="queued")
    assert send(store, unique_while="queued").id == first.id
    claim_one(store)
    second = send(store, unique_while="queued")
    assert second.id != first.id
    assert send(store, unique_while="queued").id == second.id


@pytest.mark.rule("QUE-08")
def test_a_duplicate_can_be_refused(store: PersistenceAdapter) -> None:
    first = send(store)
    with pytest.raises(Conflict) as refusal:
        send(store, on_duplicate="refuse")
    assert (refusal.value.code, refusal.value.ids) == ("duplicate", {"job_id": first.id})
    batch = [Submission.read({"type": "noop"}), request(on_duplicate="refuse")]
    with pytest.raises(Conflict):
        store.write_sync(submit, batch)
    assert count(store, "jobs") == 1


@pytest.mark.rule("QUE-08")
def test_a_duplicate_can_replace_the_params_of_the_job_that_waits(store: PersistenceAdapter) -> None:
    first = send(store, params={"n": 1})
    second = send(store, params={"n": 2}, on_duplicate="replace", title="the second")
    assert (second.id, second.params, second.title) == (first.id, {"n": 2}, "the second")
    assert look(store, first.id).params == {"n": 2}
    claim_one(store)
    with pytest.raises(Conflict, match="is RUNNING"):
        send(store, params={"n": 3}, on_duplicate="replace")
    assert look(store, first.id).params == {"n": 2}


@pytest.mark.rule("QUE-08")
def test_a_duplicate_can_push_the_start_back_but_not_for_ever(store: PersistenceAdapter, clock: ManualClock) -> None:
    began = clock.now()
    debounced = {"delay_s": 10, "on_duplicate": "push_back", "max_wait_s": 25}
    first = send(store, **debounced)
    for after_s, starts_s in ((6, 16), (6, 22), (6, 25), (6, 25)):
        clock.advance(after_s)
        assert send(store, **debounced).id == first.id
        assert look(store, first.id).not_before == began + timedelta(seconds=starts_s)
    clock.advance(2)
    assert job_of_claim(claim_one(store)).id == first.id


@pytest.mark.rule("QUE-08")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"unique_key": None, "on_duplicate": "refuse"}, "missing_key"),
        ({"unique_key": None, "unique_while": "queued"}, "missing_key"),
        ({"on_duplicate": "push_back"}, "missing_delay"),
        ({"max_wait_s": 5}, "missing_push_back"),
        ({"on_duplicate": "ignore"}, "invalid_choice"),
        ({"unique_while": "running"}, "invalid_choice"),
    ],
)
def test_fields_that_do_not_go_together_are_refused(fields: dict[str, Any], code: str) -> None:
    with pytest.raises(Invalid) as refusal:
        request(**fields)
    assert refusal.value.code == code


@pytest.mark.rule("QUE-08")
def test_one_key_twice_in_a_batch_and_in_a_group_is_refused(store: PersistenceAdapter) -> None:
    with pytest.raises(Invalid, match="twice in this batch"):
        store.write_sync(submit, [request(), request()])
    with pytest.raises(Invalid, match="job of its own"):
        store.write_sync(submit_group, None, GroupMode.PARALLEL, OnFailure.STOP, [request()])
    assert count(store, "jobs") == 0


@pytest.mark.rule("QUE-08", "QUE-01")
def test_a_request_that_is_sent_again_finds_its_own_job_whoever_has_the_key(store: PersistenceAdapter) -> None:
    first = send(store, idempotency_key="a", on_duplicate="refuse")
    assert send(store, idempotency_key="a", on_duplicate="refuse").id == first.id
    complete(store, claim_one(store))
    send(store)
    assert send(store, idempotency_key="a", on_duplicate="refuse").id == first.id


@pytest.mark.rule("QUE-08")
def test_a_retry_and_a_continuation_take_the_key_over(store: PersistenceAdapter, clock: ManualClock) -> None:
    first = send(store)
    fail(store, claim_one(store))
    retry = look(store, first.id).retried_by
    assert send(store).id == retry
    settle_as(store, claim_one(store), Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, 60),)))
    following = send(store)
    assert (following.retry_of, following.unique_key) == (retry, "k")
    clock.advance(61)
    complete(store, claim_one(store))
    assert send(store).retry_of is None


@pytest.mark.rule("QUE-08", "WAIT-08")
def test_a_chain_that_waits_in_the_middle_of_its_work_has_started(store: PersistenceAdapter) -> None:
    """Its key that counts while it is queued is free, as that of a job that runs."""
    first = send(store, unique_while="queued")
    settle_as(store, claim_one(store), Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, 60),)))
    tip = look(store, look(store, first.id).retried_by or "")
    assert (tip.status, tip.unique_key) == ("QUEUED", None)
    second = send(store, unique_while="queued")
    assert second.retry_of is None and second.id not in (first.id, tip.id)


@pytest.mark.rule("QUE-08", "STEP-01")
@pytest.mark.parametrize("change", [{"on_duplicate": "replace"}, {"on_duplicate": "push_back", "delay_s": 600}])
@pytest.mark.parametrize("has_failed", [False, True])
def test_a_chain_in_the_middle_of_its_work_is_not_changed_by_a_duplicate(
    store: PersistenceAdapter, change: dict[str, Any], has_failed: bool
) -> None:
    """What it has kept was made of the params that it began with."""
    first = send(store, params={"page": 1})
    begun = claim_one(store)
    lease = begun.lease
    entry = StepEntry(lease.id, lease.worker_id, lease.fence, first.id, "crawl", "1", lease.acquired_at, 0.1)
    store.write_sync(keep_step, entry)
    if has_failed:
        fail(store, begun)
    else:
        settle_as(store, begun, Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, 60),)))
    before = look(store, look(store, first.id).retried_by or "")
    with pytest.raises(Conflict, match="in the middle of its work") as refusal:
        send(store, params={"page": 2}, **change)
    assert refusal.value.code == "duplicate"
    after = look(store, before.id)
    assert (after.params, after.not_before) == ({"page": 1}, before.not_before)
    assert send(store, params={"page": 2}).id == before.id


@pytest.mark.rule("QUE-08")
def test_a_retry_whose_key_was_taken_while_it_ran_goes_without(store: PersistenceAdapter) -> None:
    first = send(store, unique_while="queued")
    taken = claim_one(store)
    second = send(store, unique_while="queued")
    fail(store, taken)
    retry_id = look(store, first.id).retried_by
    assert retry_id is not None
    assert look(store, retry_id).unique_key is None
    assert send(store, unique_while="queued").id == second.id


@pytest.mark.rule("QUE-08", "RET-04")
def test_a_manual_retry_needs_a_free_key(store: PersistenceAdapter) -> None:
    first = send(store)
    cancel(store, first.id)
    second = send(store)
    with pytest.raises(Conflict) as refusal:
        store.write_sync(retry_job, first.id)
    assert refusal.value.code == "duplicate"
    cancel(store, second.id)
    many = store.write_sync(retry_where, {"ids": [first.id, second.id]})
    assert (many.matched, many.changed) == (2, 1)
    assert look(store, many.ids[0]).unique_key == "k"


@pytest.mark.rule("QUE-08")
def test_the_database_refuses_a_second_job_with_the_key(store: PersistenceAdapter) -> None:
    send(store)
    other = enqueue_one(store, retry_policy=RetryPolicy())
    with pytest.raises((apsw.ConstraintError, psycopg.errors.UniqueViolation)):
        change(store, "UPDATE jobs SET unique_key = 'k', unique_while = 'unfinished' WHERE id = :id", id=other.id)


@pytest.mark.rule("QUE-08")
def test_of_many_that_submit_one_key_at_once_one_makes_the_job(
    store: PersistenceAdapter, open_store: OpenStore
) -> None:
    stores = [store, open_store(), open_store()]
    for number in range(25):
        acts = [lambda item=stores[n % 3], k=f"k{number}": send(item, unique_key=k).id for n in range(6)]
        ids = together(acts)
        assert len(set(ids)) == 1
    assert count(store, "jobs") == 25


@pytest.mark.rule("QUE-08")
@pytest.mark.parametrize("unique_while", ["queued", "unfinished"])
def test_a_submission_while_the_predecessor_fails_finds_the_retry_or_is_found_by_it(
    store: PersistenceAdapter, open_store: OpenStore, unique_while: str
) -> None:
    other = open_store()
    first = send(store, unique_while=unique_while)
    taken = claim_one(store)
    with HeldOpen(store, settle, [settlement(taken, Outcome.failed(ErrorKind.ERROR, "it broke"))]) as held:
        sending = in_background(lambda: send(other, unique_while=unique_while))
        held.commit()
    retry_id = look(store, first.id).retried_by
    assert sending.result(30).id == retry_id
    taken = claim_one(store)
    with HeldOpen(store, submit, [request(unique_while=unique_while)]) as held:
        failing = in_background(lambda: fail(other, taken))
        submitted = held.commit().jobs[0]
    failing.result(30)
    with_key = count(store, "jobs", "unique_key = 'k' AND status = 'QUEUED'")
    assert with_key == 1
    assert (submitted.id == retry_id) is (unique_while == "unfinished")


@pytest.mark.rule("QUE-08", "QUE-09")
def test_a_job_is_not_pushed_back_beyond_the_instant_at_which_it_expires(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    job = send(store, delay_s=10, expires_in_s=60)
    assert send(store, on_duplicate="push_back", delay_s=30).not_before == clock.now() + timedelta(seconds=30)
    with pytest.raises(Invalid, match="before it may start"):
        send(store, on_duplicate="push_back", delay_s=60)
    assert look(store, job.id).not_before == clock.now() + timedelta(seconds=30)
