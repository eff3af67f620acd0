"""A job that may start is found, however many jobs before it in the queue may not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest

from holdbeat.domain.affinity import Affinity
from holdbeat.domain.job import NewJob
from holdbeat.domain.limit import Limit
from holdbeat.domain.policy import Policy, Work
from holdbeat.domain.rate import Rate
from holdbeat.domain.run import Outcome
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.changes import declare_limits
from holdbeat.store.queue.move import move_job
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.running.partitions import WINDOW
from tests.conformance.acts import OpenStore, claim_some, complete, enqueue_all, ids_of, settle_as

AHEAD = 5 * WINDOW
"""So many jobs that may not start are before the one that may."""
SHAPES = {
    "no limit": (),
    "per partition": (Limit("own", resource="api", slots=1000, per_partition=True),),
    "fair": (Limit("turns", resource="api", slots=1000, fair=True),),
    "fair per partition": (Limit("own", resource="api", slots=1000, per_partition=True, fair=True),),
}


def store_with(open_store: OpenStore, *limits: Limit) -> PersistenceAdapter:
    store = open_store("unlimited")
    store.write_sync(declare_limits, (), limits, by="w")
    return store


def job_of(partition: str = "", **fields: object) -> NewJob:
    return NewJob("a", resource="api", partition=partition, **fields)  # type: ignore[arg-type]


def claimed_ids(store: PersistenceAdapter, most_claims: int = 1) -> list[str]:
    """What the first of so many claims gets that gets anything."""
    for _ in range(most_claims):
        if claims := claim_some(store, 1, worker="other"):
            return ids_of(claims)
    return []


def fill_partition(store: PersistenceAdapter, partition: str = "full") -> None:
    """One job of the partition runs, and many of it wait."""
    enqueue_all(store, [job_of(partition) for _ in range(AHEAD + 1)])
    assert len(claim_some(store, 1)) == 1


@pytest.mark.rule("LIM-04", "LIM-07")
@pytest.mark.parametrize("fair", [False, True], ids=["in order", "fair"])
@pytest.mark.parametrize("partition", ["free", ""])
@pytest.mark.parametrize("priority", [5, 0])
def test_a_job_is_found_behind_the_long_queue_of_a_full_partition(
    open_store: OpenStore, fair: bool, partition: str, priority: int
) -> None:
    store = store_with(open_store, Limit("own", resource="api", slots=1, per_partition=True, fair=fair))
    enqueue_all(store, [job_of("full", priority=5) for _ in range(AHEAD + 1)])
    assert len(claim_some(store, 1)) == 1
    (job,) = enqueue_all(store, [job_of(partition, priority=priority)])
    assert claimed_ids(store, 2) == [job.id]


@pytest.mark.rule("LIM-05", "LIM-07")
@pytest.mark.parametrize("fair", [False, True], ids=["in order", "fair"])
@pytest.mark.parametrize("partition", ["z-last", ""])
def test_a_job_is_found_behind_many_partitions_whose_rates_are_used_up(
    open_store: OpenStore, fair: bool, partition: str
) -> None:
    store = store_with(
        open_store, Limit("own", resource="api", slots=1, rate=Rate(1, 3600.0), per_partition=True, fair=fair)
    )
    used = [job_of(f"p{number:03}") for number in range(AHEAD)]
    enqueue_all(store, used)
    for run in claim_some(store, AHEAD):
        complete(store, run)
    enqueue_all(store, used)
    (job,) = enqueue_all(store, [job_of(partition)])
    assert claimed_ids(store, 2) == [job.id]


@pytest.mark.rule("LIM-06")
@pytest.mark.parametrize("fair", [False, True], ids=["in order", "fair"])
@pytest.mark.parametrize("partition", ["free", ""])
def test_a_job_is_found_behind_the_long_queue_of_a_throttled_partition(
    open_store: OpenStore, fair: bool, partition: str
) -> None:
    store = store_with(open_store, Limit("api", resource="api", slots=9, fair=fair))
    enqueue_all(store, [job_of("busy") for _ in range(AHEAD + 1)])
    (run,) = claim_some(store, 1)
    settle_as(store, run, Outcome.throttled("HTTP 429", 600))
    (job,) = enqueue_all(store, [job_of(partition)])
    assert claimed_ids(store, 2) == [job.id]


@pytest.mark.rule("LIM-07")
def test_jobs_without_a_partition_have_their_turn_behind_a_long_queue(open_store: OpenStore) -> None:
    store = store_with(open_store, Limit("api", resource="api", slots=1, fair=True))
    enqueue_all(store, [job_of("flood") for _ in range(AHEAD)])
    unnamed = enqueue_all(store, [job_of() for _ in range(3)])
    started = []
    for _ in range(20):
        (run,) = claim_some(store, 1)
        started += ids_of([run])
        complete(store, run)
    assert {job.id for job in unnamed} < set(started)


@pytest.mark.rule("LIM-07")
def test_a_job_moved_to_the_top_is_found_behind_a_full_partition_of_higher_priority(open_store: OpenStore) -> None:
    store = store_with(open_store, Limit("own", resource="api", slots=1, per_partition=True, fair=True))
    enqueue_all(store, [job_of("full", priority=5) for _ in range(AHEAD + 1)])
    assert len(claim_some(store, 1)) == 1
    (job,) = enqueue_all(store, [job_of("free")])
    store.write_sync(move_job, job.id, to="top")
    assert claimed_ids(store) == [job.id]


@pytest.mark.rule("LIM-09", "LIM-07")
@pytest.mark.parametrize("fair", [False, True], ids=["in order", "fair"])
def test_a_job_that_weighs_too_much_for_ever_does_not_hide_the_next_of_its_partition(
    open_store: OpenStore, fair: bool
) -> None:
    store = store_with(open_store, Limit("own", resource="api", slots=1, per_partition=True, fair=fair))
    fill_partition(store)
    (_, job) = enqueue_all(store, [job_of("free", weight=2), job_of("free")])
    assert claimed_ids(store) == [job.id]


class OnlyUrgentOrSmall(Policy):
    """Decides by the partition and the affinity of a job."""

    def may_start(self, job: Work, running: Sequence[Work], now: datetime) -> bool:
        return job.partition == "free" or job.affinity == "free"


@pytest.mark.rule("LIM-03")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("field", ["partition", "affinity"])
def test_a_job_that_a_policy_permits_is_found_behind_many_that_it_does_not(
    open_store: OpenStore, shape: str, field: str
) -> None:
    store = store_with(open_store, *SHAPES[shape])
    store.terms.policy = OnlyUrgentOrSmall()
    enqueue_all(store, [job_of(f"p{number % 200}", affinity="other") for number in range(AHEAD)])
    (job,) = enqueue_all(store, [job_of(**{field: "free"})])
    assert claimed_ids(store) == [job.id]


@pytest.mark.rule("LIM-03", "LIM-11")
def test_a_job_is_found_behind_many_of_the_preferred_affinity_that_a_policy_does_not_permit(
    open_store: OpenStore,
) -> None:
    store = store_with(open_store)
    store.terms.policy = OnlyUrgentOrSmall()
    enqueue_all(store, [job_of(affinity="loaded") for _ in range(AHEAD)])
    (job,) = enqueue_all(store, [job_of("free")])
    vacancy = Vacancy("w", [0], types=("a",), affinities={"api": Affinity("loaded", 1)})
    assert ids_of(store.write_sync(claim, vacancy)) == [job.id]


@pytest.mark.rule("LIM-05", "LIM-07")
def test_a_job_moved_to_the_top_does_not_start_before_the_rate_of_its_partition_permits_it(
    open_store: OpenStore,
) -> None:
    store = store_with(
        open_store, Limit("own", resource="api", slots=1, rate=Rate(1, 3600.0), per_partition=True, fair=True)
    )
    enqueue_all(store, [job_of("z-used")])
    (run,) = claim_some(store, 1)
    complete(store, run)
    others = enqueue_all(store, [job_of(f"p{number:02}") for number in range(40)])
    (moved,) = enqueue_all(store, [job_of("z-used")])
    store.write_sync(move_job, moved.id, to="top")
    assert claimed_ids(store) == [others[0].id]
