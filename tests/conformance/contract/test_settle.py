"""Settle: only who holds the lease ends the run; what others say is kept and changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Settlement
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.settle import Settled, settle
from tests.conformance.acts import (
    change,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_all,
    enqueue_one,
    events_of,
    fail,
    look,
    settlement,
    skip,
)


@pytest.mark.rule("LEASE-03", "DEC-001")
def test_the_end_of_a_run_is_the_end_of_its_job(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store)
    taken = claim_one(store)
    clock.advance(2)
    assert complete(store, taken, {"pages": 3}) == "accepted"
    job = look(store, taken.lease.job_id or "")
    assert job.run is not None
    assert (job.status, job.finished_at) == ("COMPLETED", clock.now())
    assert (job.run.status, job.run.finished_at, job.run.result) == ("COMPLETED", clock.now(), {"pages": 3})
    assert job.worker_id is None
    assert count(store, "leases") == 0


@pytest.mark.rule("RET-05")
def test_a_skip_ends_the_job_skipped_with_its_reason_and_no_retry(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    skip(store, claim_one(store), "nothing new")
    stored = look(store, job.id)
    assert stored.run is not None
    assert (stored.status, stored.run.status, stored.run.error) == ("SKIPPED", "SKIPPED", "nothing new")
    assert (stored.retried_by, count(store, "jobs")) == (None, 1)


def state_of(store: PersistenceAdapter) -> tuple[int, int, int]:
    return (
        count(store, "jobs", "status = 'RUNNING'"),
        count(store, "job_runs", "status IS NULL"),
        count(store, "leases"),
    )


@pytest.mark.rule("LEASE-03")
@pytest.mark.parametrize("lie", [{"worker_id": "thief"}, {"fence": 99}, {"lease_id": "no-such-run"}])
def test_a_result_without_its_lease_is_refused_and_changes_nothing(
    store: PersistenceAdapter, lie: dict[str, object]
) -> None:
    enqueue_one(store)
    taken = claim_one(store)
    word = replace(settlement(taken, Outcome.completed({"n": 1})), **lie)  # type: ignore[arg-type]
    assert store.write_sync(settle, [word]) == ["stale"]
    assert state_of(store) == (1, 1, 1)
    assert complete(store, taken) == "accepted"


@pytest.mark.rule("LEASE-03")
def test_a_late_result_is_kept_as_evidence(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    taken = claim_one(store, worker="late")
    change(store, "DELETE FROM leases")
    assert complete(store, taken, {"n": 1}) == "stale"
    ((job_id, run_id, worker, data),) = events_of(store, "lease.stale_result")
    evidence = data if isinstance(data, dict) else json.loads(data)
    assert (job_id, run_id, worker) == (job.id, taken.lease.id, "late")
    assert evidence["status"] == "COMPLETED"
    assert json.loads(evidence["result"]) == {"n": 1}
    assert evidence["fence"] == taken.lease.fence
    assert state_of(store) == (1, 1, 0)


@pytest.mark.rule("LEASE-03", "INV-002")
def test_a_result_told_twice_counts_once(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    taken = claim_one(store)
    word = settlement(taken, Outcome.completed({"n": 1}))
    other = settlement(taken, Outcome.failed(ErrorKind.ERROR, "no"))
    assert store.write_sync(settle, [word, other]) == ["accepted", "stale"]
    assert store.write_sync(settle, [other]) == ["stale"]
    stored = look(store, job.id)
    assert stored.run is not None
    assert (stored.status, stored.run.result, stored.run.error) == ("COMPLETED", {"n": 1}, None)


@pytest.mark.rule("LEASE-03")
def test_one_stale_result_in_a_batch_does_not_harm_the_others(store: PersistenceAdapter) -> None:
    for _ in range(4):
        enqueue_one(store)
    claims = claim_some(store, 4)
    words = [settlement(taken, Outcome.completed()) for taken in claims]
    words[2] = Settlement(words[2].lease_id, "thief", words[2].fence, words[2].outcome)
    assert store.write_sync(settle, words) == ["accepted", "accepted", "stale", "accepted"]
    assert state_of(store) == (1, 1, 1)


@pytest.mark.rule("LEASE-03")
def test_fences_grow_over_the_whole_store(store: PersistenceAdapter) -> None:
    fences = []
    for worker in ("one", "two", "one"):
        enqueue_one(store)
        taken = claim_one(store, worker=worker)
        fences.append(taken.lease.fence)
        fail(store, taken, ErrorKind.REJECTED)
    assert fences == sorted(set(fences))


@pytest.mark.rule("LEASE-03")
def test_two_results_that_carry_each_others_fences_are_both_refused(store: PersistenceAdapter) -> None:
    enqueue_all(store, [NewJob("a"), NewJob("a")])
    first, second = claim_some(store, 2)
    swapped = [
        replace(settlement(first, Outcome.completed()), fence=second.lease.fence),
        replace(settlement(second, Outcome.completed()), fence=first.lease.fence),
    ]
    assert store.write_sync(settle, swapped) == [Settled.STALE, Settled.STALE]
    assert count(store, "leases") == 2
    assert count(store, "jobs", "status = 'RUNNING'") == 2
    own = [settlement(one, Outcome.completed()) for one in (first, second)]
    assert store.write_sync(settle, own) == [Settled.ACCEPTED, Settled.ACCEPTED]
    assert count(store, "leases") == 0
