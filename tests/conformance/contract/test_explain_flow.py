"""Why a job waits for a limit: which one, who holds it, whose turn it is, and when it may start."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.limit import Limit
from holdbeat.domain.rate import Rate
from holdbeat.domain.run import Outcome
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.observe.explain import explain_job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.changes import declare_limits, set_limit
from holdbeat.store.running.workers import register_worker
from tests.conformance.acts import (
    TYPES,
    OpenStore,
    claim_one,
    claim_some,
    complete,
    enqueue_all,
    enqueue_one,
    settle_as,
)


def store_with(open_store: OpenStore, *limits: Limit) -> PersistenceAdapter:
    store = open_store("unlimited")
    store.write_sync(declare_limits, (), limits, by="w")
    worker = Worker("w", WorkerKind.WORKER, "host", 1, 9, 9, TYPES)
    store.write_sync(register_worker, worker, LeaseTerms())
    return store


def explained(store: PersistenceAdapter, job_id: str) -> dict[str, Any]:
    return store.read_sync(explain_job, job_id)


def why(store: PersistenceAdapter, job_id: str, code: str) -> dict[str, Any]:
    reasons: list[dict[str, Any]] = [entry for entry in explained(store, job_id)["reasons"] if entry["code"] == code]
    assert len(reasons) == 1
    return reasons[0]


def ran_for(store: PersistenceAdapter, clock: ManualClock, seconds: float, job: NewJob) -> None:
    """One run of a type, so that its duration is known."""
    enqueue_all(store, [job])
    taken = claim_one(store)
    clock.advance(seconds)
    complete(store, taken)


@pytest.mark.rule("LIM-01", "API-06")
def test_a_full_limit_is_named_with_its_partition(open_store: OpenStore) -> None:
    store = store_with(open_store, Limit("per account", resource="api", slots=1, per_partition=True))
    _, waiting = enqueue_all(store, [NewJob("a", resource="api", partition="acme") for _ in range(2)])
    claim_one(store)
    reason = why(store, waiting.id, "resource_full")
    assert reason["limit"] == "per account"
    assert (
        "The 1 slot of the resource api for the partition acme (limit per account) is held by job" in reason["detail"]
    )


@pytest.mark.rule("LIM-02")
def test_a_limit_without_a_slot_says_how_to_raise_it(open_store: OpenStore) -> None:
    store = store_with(open_store, Limit("gpu", resource="gpu", slots=1))
    store.write_sync(set_limit, "gpu", {"slots": 0})
    job = enqueue_one(store, "a", resource="gpu")
    assert "`holdbeat limits set gpu --slots 1`" in why(store, job.id, "resource_full")["detail"]


@pytest.mark.rule("LIM-09", "API-06")
def test_who_waits_for_a_heavy_job_waits_for_all_its_slots(open_store: OpenStore, clock: ManualClock) -> None:
    store = store_with(open_store, Limit("gpu", resource="gpu", slots=2))
    ran_for(store, clock, 60, NewJob("a", resource="gpu"))
    enqueue_all(store, [NewJob("a", resource="gpu", weight=2)])
    claim_one(store)
    now = clock.advance(20)
    light = enqueue_one(store, "a", resource="gpu")
    assert "The 2 slots of the resource gpu are held by job" in why(store, light.id, "resource_full")["detail"]
    assert explained(store, light.id)["estimated_start"] == iso(now + timedelta(seconds=40))


@pytest.mark.rule("LIM-09", "API-06")
def test_a_heavy_job_starts_when_enough_slots_are_free_or_never(open_store: OpenStore, clock: ManualClock) -> None:
    store = store_with(open_store, Limit("gpu", resource="gpu", slots=2))
    ran_for(store, clock, 60, NewJob("a", resource="gpu"))
    enqueue_one(store, "a", resource="gpu")
    claim_one(store)
    now = clock.advance(20)
    heavy = enqueue_one(store, "a", resource="gpu", weight=2)
    behind = enqueue_one(store, "a", resource="gpu")
    too_heavy = enqueue_one(store, "a", resource="gpu", weight=3)
    assert explained(store, heavy.id)["estimated_start"] == iso(now + timedelta(seconds=40))
    assert explained(store, behind.id)["estimated_start"] == iso(now + timedelta(seconds=100))
    answer = explained(store, too_heavy.id)
    assert answer["estimated_start"] is None and "probably" not in answer["summary"]
    assert "Raise the limit gpu, or submit it with a smaller weight." in answer["summary"]
    assert explained(store, enqueue_one(store, "a", resource="gpu").id)["estimated_start"] is not None


@pytest.mark.rule("LIM-05", "API-06")
def test_a_rate_that_is_used_up_is_named_and_sets_the_start(open_store: OpenStore, clock: ManualClock) -> None:
    store = store_with(
        open_store,
        Limit("wide", resource="api", rate=Rate(600, 60.0)),
        Limit("per key", resource="api", rate=Rate(2, 60.0), per_partition=True),
    )
    ran_for(store, clock, 1, NewJob("a", resource="api", partition="k"))
    jobs = enqueue_all(store, [NewJob("a", resource="api", partition="k") for _ in range(3)])
    reason = why(store, jobs[0].id, "rate_limited")
    assert reason["limits"] == ["per key"] and "per key (2 in 60 s)" in reason["detail"]
    starts = [explained(store, job.id)["estimated_start"] for job in jobs]
    assert starts == [iso(clock.now() + timedelta(seconds=29 + 30 * number, milliseconds=1)) for number in range(3)]


@pytest.mark.rule("LIM-06", "API-06")
def test_a_throttled_job_starts_when_who_was_called_permits(open_store: OpenStore, clock: ManualClock) -> None:
    store = store_with(open_store, Limit("api", resource="api", slots=4))
    ran_for(store, clock, 1, NewJob("a", resource="api", partition="k"))
    enqueue_all(store, [NewJob("a", resource="api", partition="k")])
    settle_as(store, claim_one(store), Outcome.throttled("slow down", 40))
    other = enqueue_one(store, "a", resource="api", partition="k")
    assert explained(store, other.id)["estimated_start"] == iso(clock.now() + timedelta(seconds=40, milliseconds=1))


@pytest.mark.rule("LIM-07", "API-06")
def test_where_partitions_take_turns_the_turn_is_told(open_store: OpenStore, clock: ManualClock) -> None:
    store = store_with(open_store, Limit("fair api", resource="api", slots=1, fair=True, weights={"big": 2}))
    ran_for(store, clock, 10, NewJob("a", resource="api", partition="flood"))
    enqueue_all(store, [NewJob("a", resource="api", partition="flood") for _ in range(50)])
    claim_some(store, 1)
    big = enqueue_all(store, [NewJob("b", resource="api", partition="big") for _ in range(3)])
    late = enqueue_all(store, [NewJob("a", resource="api", partition="late") for _ in range(2)])
    reason = why(store, late[1].id, "jobs_ahead")
    assert (reason["count"], reason["limit"], reason["partition"]) == (4, "fair api", "late")
    assert reason["detail"] == (
        "Partitions take turns by the limit fair api: 4 jobs are ahead of it, 1 of them of its own partition late."
    )
    assert [entry["code"] for entry in explained(store, late[0].id)["reasons"]] == ["resource_full"], "it is next"
    assert why(store, big[2].id, "jobs_ahead")["count"] == 5, "late, big, big, flood, late"
    assert explained(store, late[0].id)["estimated_start"] == iso(clock.now() + timedelta(seconds=10))
