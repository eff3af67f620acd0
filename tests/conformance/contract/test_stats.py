"""The store in numbers, and when a job will probably start."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import NewJob, RetryPolicy
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.pauses import pause
from holdbeat.store.reads.estimates import estimate_start, mean_durations
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.reads.stats import stats
from holdbeat.store.running.workers import register_worker
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import (
    OpenStore,
    cancel,
    claim_one,
    complete,
    enqueue_all,
    enqueue_one,
    fail,
    make_group,
    skip,
)

ONCE = RetryPolicy(max_attempts=0)


def hire(store: PersistenceAdapter, name: str = "live", slots: int = 100) -> None:
    worker = Worker(name, WorkerKind.WORKER, "host", 1, slots=slots, types=("noop", "a", "b"))
    store.write_sync(register_worker, worker, LeaseTerms(lease_s=100_000))


def test_an_empty_store_has_nothing_but_its_listed_resources(open_store: OpenStore) -> None:
    store = open_store("resources:default=1,http=16")
    none = {"used": 0, "waiting": 0, "oldest_wait_s": None}
    assert store.read_sync(stats) == {
        "jobs": {
            "QUEUED": 0, "RUNNING": 0, "COMPLETED": 0, "FAILED": 0, "SKIPPED": 0, "CANCELLED": 0, "CONTINUED": 0,
            "total": 0,
        },
        "resources": {"default": {"slots": 1, **none}, "http": {"slots": 16, **none}},
        "waits": {"sleep": 0, "signal": 0, "question": 0, "child": 0, "upstream": 0},
        "runs": {"last_hour": {"COMPLETED": 0, "FAILED": 0, "SKIPPED": 0, "CONTINUED": 0}},
        "workers": 0,
        "zombies_recovered": 0,
        "stale_results": 0,
        "schedules": 0,
    }  # fmt: skip


def test_every_status_outcome_and_incident_is_counted(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store, "a")
    stale = claim_one(store)
    complete(store, stale)
    clock.advance(3601)
    complete(store, stale)
    complete(store, stale)
    for end in (complete, complete, fail, skip):
        enqueue_one(store, "b", retry_policy=ONCE)
        end(store, claim_one(store))
    cancel(store, enqueue_one(store).id)
    enqueue_all(store, [NewJob("noop") for _ in range(3)])
    claim_one(store)
    hire(store)
    result = store.read_sync(stats)
    assert result["jobs"] == {
        "QUEUED": 2, "RUNNING": 1, "COMPLETED": 3, "FAILED": 1, "SKIPPED": 1, "CANCELLED": 1, "CONTINUED": 0,
        "total": 9,
    }  # fmt: skip
    assert result["runs"]["last_hour"] == {"COMPLETED": 2, "FAILED": 1, "SKIPPED": 1, "CONTINUED": 0}
    assert (result["stale_results"], result["zombies_recovered"], result["workers"]) == (2, 0, 1)
    clock.advance(100_001)
    assert store.read_sync(stats)["workers"] == 0


def test_resources_show_slots_use_and_the_oldest_wait(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:default=1,gpu=2")
    enqueue_one(store, resource="gpu")
    claim_one(store)
    enqueue_one(store, resource="gpu")
    enqueue_one(store, resource="gpu", not_before=clock.now() + timedelta(seconds=30))
    enqueue_one(store, resource="odd", not_before=clock.now() + timedelta(hours=1))
    clock.advance(10)
    resources = store.read_sync(stats)["resources"]
    assert resources["gpu"] == {"slots": 2, "used": 1, "waiting": 1, "oldest_wait_s": 10}
    assert "odd" not in resources
    clock.advance(25)
    assert store.read_sync(stats)["resources"]["gpu"]["waiting"] == 2
    claim_one(store, first_slot=1)
    assert store.read_sync(stats)["resources"]["gpu"] == {"slots": 2, "used": 2, "waiting": 1, "oldest_wait_s": 5}
    clock.advance(3600)
    assert store.read_sync(stats)["resources"]["odd"] == {
        "slots": 1, "used": 0, "waiting": 1, "oldest_wait_s": 35,
    }  # fmt: skip


@pytest.mark.parametrize(("policy", "slots"), [("global:4", 4), ("unlimited", None), ("per_type:a=2", None)])
def test_slots_follow_the_policy(open_store: OpenStore, policy: str, slots: int | None) -> None:
    store = open_store(policy)
    enqueue_one(store)
    assert store.read_sync(stats)["resources"]["default"]["slots"] == slots


@pytest.mark.rule("API-06")
def test_the_mean_is_that_of_the_last_twenty_runs(store: PersistenceAdapter, clock: ManualClock) -> None:
    for duration_s in [1000] * 3 + [10] * 10 + [20] * 10:
        enqueue_one(store, "a")
        taken = claim_one(store)
        clock.advance(duration_s)
        complete(store, taken)
    assert store.read_sync(mean_durations, ["a", "b"]) == {"a": 15}


def estimate(store: PersistenceAdapter, job_id: str) -> Any:
    def ask(tx: Transaction) -> Any:
        return estimate_start(tx, load_job(tx, job_id))

    return store.read_sync(ask)


@pytest.mark.rule("API-06")
def test_a_start_is_estimated_from_what_runs_and_what_stands_ahead(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:default=1")
    hire(store)
    for type_, duration_s in (("a", 10), ("b", 100)):
        enqueue_one(store, type_)
        taken = claim_one(store)
        clock.advance(duration_s)
        complete(store, taken)
    enqueue_one(store, "a")
    next_one, then, last = enqueue_one(store, "b"), enqueue_one(store, "a"), enqueue_one(store, "a", priority=5)
    claim_one(store)
    now = clock.advance(4)
    running = store.read_sync(load_job, last.id)
    assert running.status == "RUNNING"
    first = store.read_sync(load_job, next_one.id)
    assert estimate(store, running.id) is None
    assert estimate(store, first.id) == now + timedelta(seconds=6 + 10)
    assert estimate(store, then.id) == now + timedelta(seconds=6 + 10 + 100)
    late = enqueue_one(store, "a", priority=9, not_before=now + timedelta(hours=9))
    assert estimate(store, late.id) == now + timedelta(hours=9)


@pytest.mark.rule("API-06")
def test_a_start_that_cannot_be_known_is_not_guessed(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:default=1")
    job = enqueue_one(store, "a")
    assert estimate(store, job.id) is None, "nobody is there to run it"
    hire(store)
    assert estimate(store, job.id) == clock.now()
    behind = enqueue_one(store, "a")
    assert estimate(store, behind.id) is None, "a type ahead has never run"
    taken = claim_one(store)
    clock.advance(5)
    complete(store, taken)
    assert estimate(store, behind.id) == clock.now()
    store.write_sync(pause)
    assert estimate(store, behind.id) is None, "paused without an end"
    _, (_, gated) = make_group(store, GroupMode.SEQUENTIAL, OnFailure.STOP, 2)
    assert estimate(store, gated.id) is None
