"""Cancel against everything else: whoever commits first wins, and there is one end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, NotFound
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Claim
from holdbeat.store.adapter import PersistenceAdapter
from tests.conformance.acts import (
    OpenStore,
    cancel,
    claim_all,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_all,
    enqueue_one,
    events_of,
    fail,
    ids_of,
    look,
    rows,
)

ROUNDS = 1000


@pytest.mark.rule("CAN-01", "DEC-001")
def test_a_job_cancelled_while_queued_never_runs_and_has_no_run(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    assert cancel(store, job.id, "not needed").status == "CANCELLED"
    assert claim_all(store) == []
    stored = look(store, job.id)
    assert (stored.status, stored.cancel_reason, stored.run) == ("CANCELLED", "not needed", None)


@pytest.mark.rule("CAN-01", "CAN-02", "CAN-04")
def test_a_running_job_is_cancelled_at_once_and_its_run_ends_cancelled_whatever_it_returns(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    job = enqueue_one(store)
    taken = claim_one(store)
    result = cancel(store, job.id)
    assert (result.status, result.worker_id) == ("CANCELLED", "w")
    clock.advance(3)
    assert complete(store, taken, {"n": 1}) == "accepted"
    result = look(store, job.id)
    assert result.run is not None
    assert (result.status, result.finished_at) == ("CANCELLED", result.cancel_requested_at)
    assert (result.run.status, result.run.error_kind, result.run.result) == ("FAILED", "cancelled", None)
    assert (result.retried_by, count(store, "jobs"), count(store, "leases")) == (None, 1, 0)


@pytest.mark.rule("CAN-01")
def test_what_has_ended_cannot_be_cancelled(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    complete(store, claim_one(store))
    with pytest.raises(Conflict) as refusal:
        cancel(store, job.id)
    assert refusal.value.code == "already_ended"
    assert look(store, job.id).status == "COMPLETED"
    other = enqueue_one(store)
    cancel(store, other.id)
    with pytest.raises(Conflict):
        cancel(store, other.id)
    with pytest.raises(NotFound):
        cancel(store, "no-such-job")


@pytest.mark.rule("CAN-01")
def test_a_cancel_acts_on_the_tip_of_the_chain(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store)
    fail(store, claim_one(store))
    clock.advance(10)
    fail(store, claim_one(store))
    tip = cancel(store, job.id)
    assert (tip.attempt, tip.status) == (2, "CANCELLED")
    clock.advance(100)
    assert claim_all(store) == []
    assert look(store, job.id).status == "FAILED"


def race(rounds: int, one: Callable[[int], object], other: Callable[[int], object]) -> list[tuple[object, object]]:
    """Both sides of every round at the same instant; what each said."""
    barrier = threading.Barrier(2)
    lines: list[list[object]] = [[], []]

    def run(side: int, act: Callable[[int], object]) -> None:
        for number in range(rounds):
            barrier.wait()
            try:
                lines[side].append(act(number))
            except Exception as error:
                lines[side].append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate((one, other))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(zip(*lines, strict=True))


@pytest.mark.rule("CAN-01")
@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_cancel_against_settle_leaves_one_end_a_thousand_times(open_store: OpenStore, ending: str) -> None:
    rounds = ROUNDS // 2
    store, second_store = open_store(), open_store()
    jobs = enqueue_all(store, [NewJob("a") for _ in range(rounds)])
    claims = claim_all(store)
    settle_it: Callable[[PersistenceAdapter, Claim], object] = complete if ending == "complete" else fail
    results = race(
        rounds,
        lambda n: settle_it(second_store, claims[n]),
        lambda n: cancel(store, jobs[n].id).id,
    )
    ends: Counter[str] = Counter()
    for job, (settled, cancelled) in zip(jobs, results, strict=True):
        assert settled == "accepted"
        stored = look(store, job.id)
        assert stored.run is not None
        ends[stored.status] += 1
        if stored.status == "CANCELLED":
            assert cancelled == job.id
            assert (stored.run.status, stored.run.error_kind) == ("FAILED", "cancelled")
            assert stored.retried_by is None
        elif ending == "complete":
            assert (stored.status, stored.run.status) == ("COMPLETED", "COMPLETED")
            assert isinstance(cancelled, Conflict)
        else:
            # The cancel came after the failure: it found the retry at the tip.
            assert stored.status == "FAILED"
            assert cancelled == stored.retried_by
            assert look(store, stored.retried_by or "").status == "CANCELLED"
    assert sum(ends.values()) == rounds
    assert count(store, "leases") == 0
    assert rows(store, "SELECT count(*) FROM jobs WHERE status IN ('QUEUED', 'RUNNING')") == [(0,)]


@pytest.mark.rule("CAN-01")
def test_cancel_against_claim_either_never_runs_or_runs_and_is_told(open_store: OpenStore) -> None:
    rounds = 200
    store, second_store = open_store(), open_store()
    jobs: list[str] = []

    def claim_it(number: int) -> list[str]:
        return ids_of(claim_some(second_store, 1, first_slot=number))

    def cancel_it(number: int) -> str:
        return str(cancel(store, jobs[number]).status)

    barrier_jobs = enqueue_all(store, [NewJob("a") for _ in range(rounds)])
    jobs += [job.id for job in barrier_jobs]
    results = race(rounds, claim_it, cancel_it)
    claimed = {job_id for taken, _ in results if isinstance(taken, list) for job_id in taken}
    assert all(cancelled == "CANCELLED" for _, cancelled in results)
    assert all(isinstance(taken, list) for taken, _ in results), results
    job_ids = {event[0] for event in events_of(store, "job.cancel_requested")}
    assert job_ids == claimed
    assert {row[0] for row in rows(store, "SELECT job_id FROM job_runs")} == claimed
    assert count(store, "jobs", "status = 'CANCELLED'") == rounds


@pytest.mark.rule("CAN-02", "OPS-04")
def test_the_event_of_a_requested_cancel_names_run_and_worker(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    taken = claim_one(store, worker="w-1")
    cancel(store, job.id, "enough")
    recorded = rows(store, "SELECT run_id, worker_id FROM events WHERE name = 'job.cancel_requested'")
    assert recorded == [(taken.lease.id, "w-1")]
