"""Fair turns between partitions: by weight, for a job moved to the top, over 50 partitions."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Claim
from holdbeat.domain.limit import Limit
from holdbeat.domain.rate import Rate
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.changes import declare_limits, set_limit
from holdbeat.store.queue.move import move_job
from tests.conformance.acts import OpenStore, claim_some, complete, enqueue_all, job_of_claim

pytestmark = pytest.mark.rule("LIM-07")


def fair_store(open_store: OpenStore, slots: int = 1, weights: dict[str, int] | None = None) -> PersistenceAdapter:
    store = open_store("unlimited")
    limit = Limit("api", resource="api", slots=slots, fair=True, weights=weights)
    store.write_sync(declare_limits, (), [limit], by="w")
    return store


def jobs_of(counts: dict[str, int], priority: int = 0) -> list[NewJob]:
    return [
        NewJob("a", resource="api", priority=priority, partition=partition)
        for partition, count in counts.items()
        for _ in range(count)
    ]


def served(store: PersistenceAdapter, count: int, at_once: int = 1) -> list[str]:
    """The partitions in the order of their starts, with so many slots at once."""
    order: list[str] = []
    while len(order) < count:
        claims = claim_some(store, at_once)
        assert claims
        order += [job_of_claim(claim).partition for claim in claims]
        for claim in claims:
            complete(store, claim)
    return order


@pytest.mark.parametrize("at_once", [1, 3])
def test_partitions_take_turns_by_their_weights(open_store: OpenStore, at_once: int) -> None:
    store = fair_store(open_store, at_once, {"big": 3})
    enqueue_all(store, jobs_of({"big": 40, "mid": 40, "small": 40}))
    order = served(store, 60, at_once)
    assert Counter(order) == {"big": 36, "mid": 12, "small": 12}
    assert Counter(order[:10])["big"] in (6, 7), "in turns, not one after the other"


def test_a_weight_can_be_set_while_workers_run(open_store: OpenStore) -> None:
    store = fair_store(open_store)
    enqueue_all(store, jobs_of({"x": 50, "y": 50}))
    assert Counter(served(store, 10)) == {"x": 5, "y": 5}
    store.write_sync(set_limit, "api", {"weights": {"y": 4}})
    assert Counter(served(store, 20)) == {"x": 4, "y": 16}


def test_a_job_moved_to_the_top_goes_first_and_costs_its_partition_no_turn(open_store: OpenStore) -> None:
    store = fair_store(open_store)
    jobs = enqueue_all(store, jobs_of({"x": 5, "y": 5, "z": 5}))
    assert served(store, 1) == ["x"]
    last = jobs[-1].id
    store.write_sync(move_job, last, to="top")
    (claim,) = claim_some(store, 1)
    assert job_of_claim(claim).id == last
    complete(store, claim)
    assert served(store, 3) == ["y", "z", "x"]


def test_a_job_that_was_moved_away_from_the_top_waits_for_its_turn_again(open_store: OpenStore) -> None:
    store = fair_store(open_store)
    jobs = enqueue_all(store, jobs_of({"x": 3, "z": 3}))
    store.write_sync(move_job, jobs[-1].id, to="top")
    store.write_sync(move_job, jobs[-1].id, to="bottom")
    assert served(store, 4) == ["x", "z", "x", "z"]


def test_a_moved_job_without_room_in_its_partition_holds_up_nobody(open_store: OpenStore) -> None:
    store = fair_store(open_store, 5)
    store.write_sync(declare_limits, (), [Limit("one", resource="api", slots=1, per_partition=True)], by="w")
    jobs = enqueue_all(store, jobs_of({"x": 3, "y": 1}))
    store.write_sync(move_job, jobs[1].id, to="top")
    store.write_sync(move_job, jobs[2].id, to="top")
    (first,) = claim_some(store, 1)
    assert job_of_claim(first).id == jobs[2].id
    (second,) = claim_some(store, 1, first_slot=1)
    assert job_of_claim(second).partition == "y"


def test_a_partition_without_jobs_saves_up_no_turns(open_store: OpenStore) -> None:
    store = fair_store(open_store, 1, {"x": 2})
    enqueue_all(store, jobs_of({"y": 30}))
    served(store, 10)
    enqueue_all(store, jobs_of({"x": 30}))
    assert Counter(served(store, 12)) == {"x": 8, "y": 4}


@pytest.mark.parametrize("at_once", [1, 4])
def test_fifty_partitions_of_which_one_has_a_thousand_times_as_much_have_equal_shares(
    open_store: OpenStore, at_once: int
) -> None:
    store = fair_store(open_store, at_once)
    counts = {"flood": 4000} | {f"p{number:02}": 4 + number % 3 for number in range(49)}
    enqueue_all(store, jobs_of(counts))
    left = dict(counts)
    shares: Counter[str] = Counter()
    while all(left.values()):
        for partition in served(store, at_once, at_once):
            left[partition] -= 1
            shares[partition] += 1
    total = sum(shares.values())
    assert total >= 150
    for partition in counts:
        assert abs(shares[partition] - total / 50) <= max(1.0, 0.1 * total / 50), partition


def order_of(store: PersistenceAdapter, count: int, at_once: int = 1) -> list[tuple[str, str]]:
    """Resource and partition of so many jobs in the order of their starts."""
    order: list[tuple[str, str]] = []
    while len(order) < count:
        claims = claim_some(store, at_once)
        assert claims
        order += [(job_of_claim(claim).resource, job_of_claim(claim).partition) for claim in claims]
        for claim in claims:
            complete(store, claim)
    return order


@pytest.mark.parametrize("at_once", [1, 3])
def test_partitions_take_turns_whatever_types_of_jobs_they_have(open_store: OpenStore, at_once: int) -> None:
    store = fair_store(open_store, at_once, {"mixed": 2})
    enqueue_all(store, jobs_of({"flood": 30}))
    enqueue_all(store, [NewJob("b", resource="api", partition="late") for _ in range(6)])
    enqueue_all(store, [NewJob(kind, resource="api", partition="mixed") for kind in "ab" * 6])
    order = [partition for _, partition in order_of(store, 24, at_once)]
    assert Counter(order) == {"flood": 6, "late": 6, "mixed": 12}
    assert all(Counter(order[start : start + 4])["mixed"] == 2 for start in range(0, 24, 4)), order
    assert {partition for _, partition in order_of(store, 24, at_once)} == {"flood"}


def test_partitions_keep_their_turns_beside_jobs_of_another_resource(open_store: OpenStore) -> None:
    """The jobs of a lane in turns and those of a plain one compete for the slots of a worker."""
    store = fair_store(open_store, slots=2)
    enqueue_all(store, jobs_of({"flood": 20}))
    enqueue_all(store, [NewJob("b") for _ in range(20)])
    enqueue_all(store, jobs_of({"late": 5}))
    order = order_of(store, 20, at_once=2)
    assert order[:10] == [("api", "flood"), ("api", "late")] * 5, "the line of the resource is older than the other"
    assert order[10:] == [("api", "flood")] * 10


@pytest.mark.rule("LIM-01", "LIM-04", "LIM-05", "LIM-09")
@pytest.mark.parametrize("seed", [0, 3])
def test_turns_rates_slots_by_partition_and_heavy_jobs_go_together(
    open_store: OpenStore, clock: ManualClock, seed: int
) -> None:
    """Every second a worker claims what it can: all jobs of all partitions start, and no limit is exceeded."""
    chance = random.Random(seed)
    store = open_store("unlimited")
    limits = [
        Limit("api", resource="api", slots=3, fair=True, weights={"big": 2}),
        Limit("per key", resource="api", rate=Rate(1, 10.0), per_partition=True),
        Limit("each", resource="api", slots=2, per_partition=True),
    ]
    store.write_sync(declare_limits, (), limits, by="w")
    counts = {"flood": 15, "big": 6, "late": 3, "": 4}
    jobs = [
        NewJob(chance.choice("ab"), resource="api", partition=partition, weight=chance.choice([1, 1, 2]))
        for partition, count in counts.items()
        for _ in range(count)
    ]
    chance.shuffle(jobs)
    enqueue_all(store, jobs)
    starts: dict[str, list[int]] = {partition: [] for partition in counts}
    held: list[tuple[int, Claim]] = []
    for second in range(150):
        for claim in claim_some(store, 3, worker=f"w{second}"):
            starts[job_of_claim(claim).partition].append(second)
            held.append((second + chance.choice([1, 4, 7]), claim))
        used = Counter[str]()
        for _, claim in held:
            used[job_of_claim(claim).partition] += job_of_claim(claim).weight
        assert used.total() <= 3 and all(weight <= 2 for weight in used.values())
        clock.advance(1)
        for _, claim in [entry for entry in held if entry[0] <= second + 1]:
            complete(store, claim)
        held = [entry for entry in held if entry[0] > second + 1]
    assert {partition: len(seconds) for partition, seconds in starts.items()} == counts
    assert all(later - earlier >= 10 for seconds in starts.values() for earlier, later in pairwise(seconds))
    assert starts["late"][-1] < 40, "it waits for nobody's queue"
