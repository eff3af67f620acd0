"""INV-004: what is claimed next, against a sorted list."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdbeat.domain.capacity import Capacity, Usage
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.job import Job, NewJob
from holdbeat.domain.limit import Limits
from holdbeat.store.adapter import PersistenceAdapter
from tests.conformance.acts import (
    OpenStore,
    change,
    claim_all,
    claim_some,
    complete,
    enqueue_all,
    enqueue_one,
    ids_of,
    look,
)

TYPES = ("a", "b", "c")
RESOURCES = ("default", "gpu", "cpu", "unlisted")
POLICIES = (
    "resources:default=1000,gpu=1000,cpu=1000,unlisted=1000",
    "resources:default=3,gpu=2,cpu=0",
    "per_type:a=2,b=1,c=1000",
    "global:4",
    "unlimited",
)


@dataclass(frozen=True)
class Wish:
    """A Job of the generated queue."""

    type: str
    resource: str
    priority: int
    delay_s: int


@dataclass(frozen=True)
class Visit:
    """A worker that comes by with some free slots."""

    pause_s: int
    slots: int
    types: tuple[str, ...]
    resources: tuple[str, ...] | None
    settles: bool


WISHES = st.builds(
    Wish,
    st.sampled_from(TYPES),
    st.sampled_from(RESOURCES),
    st.sampled_from([0, 0, 1, 50, 100]),
    st.sampled_from([0, 0, 0, 5, 30]),
)
VISITS = st.builds(
    Visit,
    st.sampled_from([0, 5, 30]),
    st.integers(1, 7),
    st.lists(st.sampled_from(TYPES), min_size=1, unique=True).map(tuple),
    st.none() | st.lists(st.sampled_from(RESOURCES), min_size=1, unique=True).map(tuple),
    st.booleans(),
)


def wipe(store: PersistenceAdapter) -> None:
    """Begins anew without the price of a new store."""
    for table in ("jobs", "job_runs", "leases"):
        change(store, f"DELETE FROM {table}")


def expected_next(queue: list[Job], running: list[Job], visit: Visit, limits: Limits, now: datetime) -> list[str]:
    """The rule in its plainest form: sort everything, walk down, take what may run."""
    capacity = Capacity(limits, [Usage(job.resource, job.type, 1) for job in running])
    chosen: list[str] = []
    for job in sorted(queue, key=lambda job: (-job.priority, job.position, job.created_at, job.id)):
        may_run = (
            (job.not_before is None or job.not_before <= now)
            and job.type in visit.types
            and (visit.resources is None or job.resource in visit.resources)
            and capacity.free(job.resource, job.type) != 0
        )
        if may_run and len(chosen) < visit.slots:
            capacity.take(job.resource, job.type)
            chosen.append(job.id)
    return chosen


@pytest.mark.rule("INV-004", "CAP-01", "DEC-011")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    wishes=st.lists(WISHES, min_size=1, max_size=25),
    visits=st.lists(VISITS, min_size=1, max_size=5),
    policy=st.sampled_from(POLICIES),
)
def test_every_claim_takes_what_a_sorted_list_would_give(
    open_store: OpenStore, wishes: list[Wish], visits: list[Visit], policy: str
) -> None:
    clock = open_store.clock
    store = open_store.kept(policy)
    wipe(store)
    queue: list[Job] = []
    for wish in wishes:
        not_before = clock.now() + timedelta(seconds=wish.delay_s) if wish.delay_s else None
        request = NewJob(wish.type, resource=wish.resource, priority=wish.priority, not_before=not_before)
        queue += enqueue_all(store, [request])
    running: list[Job] = []
    slot = 0
    for visit in visits:
        clock.advance(visit.pause_s)
        claims = claim_some(store, visit.slots, first_slot=slot, types=visit.types, resources=visit.resources)
        slot += visit.slots
        expected_events = expected_next(queue, running, visit, ConcurrencyPolicy.parse(policy).limits(), clock.now())
        assert ids_of(claims) == expected_events
        taken = set(expected_events)
        if visit.settles:
            for claim in claims:
                complete(store, claim)
        else:
            running += [job for job in queue if job.id in taken]
        queue = [job for job in queue if job.id not in taken]


@pytest.mark.rule("INV-004", "DEC-005")
def test_higher_priorities_go_first_and_equals_in_the_order_they_came(store: PersistenceAdapter) -> None:
    low = enqueue_one(store, priority=1)
    high = enqueue_one(store, priority=9)
    later = enqueue_one(store, priority=9)
    assert later.position > high.position
    assert ids_of(claim_all(store)) == [high.id, later.id, low.id]


@pytest.mark.rule("INV-004", "DEC-005")
def test_a_batch_keeps_its_order_within_each_priority(store: PersistenceAdapter) -> None:
    jobs = enqueue_all(store, [NewJob("a", priority=n % 3, resource=("gpu", "cpu")[n % 2]) for n in range(60)])
    expected = sorted(jobs, key=lambda job: (-job.priority, job.params.get("n", job.position)))
    assert ids_of(claim_all(store)) == [job.id for job in expected]


@pytest.mark.rule("INV-004")
def test_position_decides_before_age_and_age_before_id(store: PersistenceAdapter, clock: ManualClock) -> None:
    late, early, moved = enqueue_all(store, [NewJob("a") for _ in range(3)])
    change(store, "UPDATE jobs SET position = 7 WHERE id IN :ids", ids=[late.id, early.id])
    change(
        store,
        "UPDATE jobs SET created_at = :at WHERE id = :id",
        id=early.id,
        at=clock.now() - timedelta(seconds=1),
    )
    change(store, "UPDATE jobs SET position = -5 WHERE id = :id", id=moved.id)
    assert ids_of(claim_all(store)) == [moved.id, early.id, late.id]


@pytest.mark.rule("INV-004")
def test_a_delayed_job_is_out_of_the_way_until_its_instant_and_then_in_its_place(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    delayed = enqueue_one(store, not_before=clock.now() + timedelta(seconds=5))
    first, second = enqueue_one(store), enqueue_one(store)
    clock.advance(4.999)
    assert ids_of(claim_some(store, 1)) == [first.id]
    clock.advance(0.001)
    assert ids_of(claim_some(store, 2, first_slot=1)) == [delayed.id, second.id]


@pytest.mark.rule("INV-004")
def test_a_worker_gets_only_types_and_resources_it_serves(store: PersistenceAdapter) -> None:
    enqueue_one(store, "a", resource="gpu")
    enqueue_one(store, "b", resource="gpu")
    mine = enqueue_one(store, "b", resource="cpu")
    assert ids_of(claim_some(store, 5, types=["b"], resources=["cpu"])) == [mine.id]
    assert claim_some(store, 5, first_slot=5, types=["unknown"]) == []
    assert claim_some(store, 5, first_slot=5, types=[]) == []
    assert claim_some(store, 0) == []


@pytest.mark.rule("INV-004", "QUE-04")
@pytest.mark.parametrize("paused", ["gpu", "*"])
def test_what_is_paused_is_not_claimed_and_goes_on_where_it_stood(
    store: PersistenceAdapter, clock: ManualClock, paused: str
) -> None:
    held = enqueue_one(store, resource="gpu")
    other = enqueue_one(store, resource="cpu")
    change(
        store,
        "INSERT INTO queue_pauses (resource, paused_at) VALUES (:resource, :now)",
        resource=paused,
        now=clock.now(),
    )
    assert ids_of(claim_all(store, worker="one")) == ([other.id] if paused == "gpu" else [])
    change(store, "DELETE FROM queue_pauses")
    assert ids_of(claim_all(store, worker="two"))[0] == held.id


@pytest.mark.rule("INV-004", "LEASE-01")
def test_a_claim_writes_job_run_and_lease_together(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store, "a", params={"n": 1}, resource="gpu")
    (result,) = claim_some(store, 1, worker="w1", first_slot=4)
    job, lease = result.job, result.lease
    assert job is not None
    run = look(store, job.id).run
    assert run is not None
    assert (job.status, job.started_at, job.worker_id) == ("RUNNING", clock.now(), "w1")
    assert (run.job_id, run.params_snapshot, run.fence, run.status) == (job.id, {"n": 1}, lease.fence, None)
    assert (lease.id, lease.job_id, lease.slot, lease.resource, lease.type) == (run.id, job.id, 4, "gpu", "a")
    assert lease.expires_at == clock.now() + timedelta(seconds=300)
