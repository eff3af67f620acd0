"""Preemption by consent: who is interrupted for whom, and what the interrupted one keeps."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import PREEMPTIBLE, PREEMPTS, Job, NewJob, RetryPolicy
from holdbeat.domain.lease import Claim, LeaseTerms
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.observe.explain import explain_job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.pauses import pause
from holdbeat.store.running.preemption import preempt, preempted_leases, wants_to_preempt
from holdbeat.store.running.reservations import reserve
from holdbeat.store.running.workers import register_worker
from tests.conformance.acts import OpenStore, claim_some, complete, enqueue_all, events_of, ids_of, look, settle_as

pytestmark = pytest.mark.rule("LIM-13")

BATCH: dict[str, Any] = {"resource": "gpu", "preemption": PREEMPTIBLE}
URGENT: dict[str, Any] = {"resource": "gpu", "preemption": PREEMPTS, "priority": 50}


def a_store(open_store: OpenStore, slots: int = 1) -> PersistenceAdapter:
    store = open_store(f"resources:gpu={slots}")
    worker = Worker("w", WorkerKind.WORKER, "host", 1, slots=9, types=("a", "b"), version="1")
    store.write_sync(register_worker, worker, LeaseTerms(lease_s=86_400))
    return store


def running(store: PersistenceAdapter, *jobs: NewJob) -> list[Claim]:
    enqueue_all(store, list(jobs))
    claims = claim_some(store, 9)
    assert len(claims) == len(jobs)
    return claims


def interrupted(store: PersistenceAdapter, claim: Claim) -> Job:
    """Ends a run as its worker does when it was told to; returns the job that follows."""
    outcome = Outcome.failed(ErrorKind.INTERRUPTED, "Interrupted for work of a higher priority.")
    outcome.is_preempted = True
    settle_as(store, claim, outcome)
    assert claim.job is not None
    return look(store, look(store, claim.job.id).retried_by or "")


def test_a_preemptible_run_is_interrupted_and_goes_on_in_its_place_without_a_counted_attempt(
    open_store: OpenStore,
) -> None:
    store = a_store(open_store)
    (batch,) = running(store, NewJob("a", retry_policy=RetryPolicy(max_attempts=0), **BATCH))
    later = enqueue_all(store, [NewJob("a", **BATCH)] * 2)
    (urgent,) = enqueue_all(store, [NewJob("b", **URGENT)])
    assert store.write_sync(preempt) == 1
    assert store.read_sync(preempted_leases, "w") == [batch.lease.id]
    assert store.write_sync(preempt) == 0, "one is enough"
    retry = interrupted(store, batch)
    assert batch.job is not None
    assert (retry.position, retry.priority, retry.chain_id) == (batch.job.position, 0, batch.job.id)
    (claim,) = claim_some(store, 9)
    assert claim.job is not None and claim.job.id == urgent.id
    complete(store, claim)
    assert ids_of(claim_some(store, 1)) == [retry.id], "before those behind it"
    assert look(store, later[0].id).status == "QUEUED"
    ((job_id, run_id, _, _),) = events_of(store, "job.preempted")
    assert (job_id, run_id) == (batch.job.id, batch.lease.id)
    summary = store.read_sync(explain_job, batch.job.id)["summary"]
    assert "because it was interrupted (" in summary and "shut down" not in summary


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"resource": "gpu"}, URGENT),
        (BATCH, {**URGENT, "preemption": 0}),
        ({**BATCH, "priority": 50}, URGENT),
        ({**BATCH, "resource": "other"}, URGENT),
        (BATCH, {**URGENT, "resource": "free"}),
    ],
    ids=["no consent", "not asked for", "same priority", "another resource", "a free slot"],
)
def test_nothing_is_interrupted_unless_both_sides_agreed_and_it_helps(
    open_store: OpenStore, mine: dict[str, Any], theirs: dict[str, Any]
) -> None:
    store = a_store(open_store)
    running(store, NewJob("a", **mine), *([] if mine.get("resource") == "gpu" else [NewJob("a", resource="gpu")]))
    enqueue_all(store, [NewJob("b", **theirs)])
    assert store.write_sync(preempt) == 0
    assert store.read_sync(preempted_leases, "w") == []


def test_the_lowest_priority_and_of_these_the_newest_is_interrupted_and_no_more_than_needed(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = a_store(open_store, 3)
    running(store, NewJob("a", **{**BATCH, "priority": 9}))
    clock.advance(1)
    enqueue_all(store, [NewJob("a", **BATCH)])
    claim_some(store, 1, first_slot=1)
    clock.advance(1)
    enqueue_all(store, [NewJob("a", **BATCH)])
    (newest,) = claim_some(store, 1, first_slot=2)
    enqueue_all(store, [NewJob("b", **URGENT)])
    assert store.write_sync(preempt) == 1
    assert store.read_sync(preempted_leases, "w") == [newest.lease.id]
    enqueue_all(store, [NewJob("b", **URGENT)])
    assert store.write_sync(preempt) == 1, "a second one needs a second slot"


def test_a_heavy_job_interrupts_as_many_as_it_needs_or_none(open_store: OpenStore) -> None:
    store = a_store(open_store, 3)
    running(store, NewJob("a", **BATCH), NewJob("a", **BATCH), NewJob("a", resource="gpu"))
    (giant,) = enqueue_all(store, [NewJob("b", weight=3, **URGENT)])
    assert store.write_sync(preempt) == 0, "one of three did not agree"
    enqueue_all(store, [NewJob("b", weight=2, **URGENT)])
    assert store.write_sync(preempt) == 2
    assert giant.weight == 3


def test_a_direct_request_preempts_if_it_says_so(open_store: OpenStore) -> None:
    store = a_store(open_store)
    (batch,) = running(store, NewJob("a", **{**BATCH, "priority": 100}))
    store.write_sync(reserve, NewJob("b", resource="gpu"), "owner", 600)
    assert not store.read_sync(wants_to_preempt) and store.write_sync(preempt) == 0
    mine = store.write_sync(reserve, NewJob("b", resource="gpu", preemption=PREEMPTS), "owner", 600)
    assert store.read_sync(wants_to_preempt) and store.write_sync(preempt) == 1
    interrupted(store, batch)
    assert claim_some(store, 1)[0].lease.reservation_id is not None
    assert mine.preempts


def test_a_paused_resource_interrupts_nobody(open_store: OpenStore) -> None:
    store = a_store(open_store)
    running(store, NewJob("a", **BATCH))
    enqueue_all(store, [NewJob("b", **URGENT)])
    store.write_sync(pause, "gpu")
    assert store.write_sync(preempt) == 0
