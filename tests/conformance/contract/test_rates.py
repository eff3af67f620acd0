"""Partitions and rates: what may start, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import NewJob
from holdbeat.domain.limit import Limit
from holdbeat.domain.rate import Rate
from holdbeat.observe.explain import explain_job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.changes import declare_limits, set_limit
from holdbeat.store.recovery.prune import prune
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.reservations import reserve
from holdbeat.store.running.settle_and_claim import settle_and_claim
from tests.conformance.acts import OpenStore, claim_some, complete, count, enqueue_all, fail, ids_of, look


def declare(store: PersistenceAdapter, *limits: Limit) -> None:
    store.write_sync(declare_limits, (), limits, by="w")


def jobs_of(*partitions: str, type_: str = "a") -> list[NewJob]:
    return [NewJob(type_, resource="api", partition=partition) for partition in partitions]


def partitions_of(claims: list[Any]) -> list[str]:
    return [claim.job.partition for claim in claims]


@pytest.mark.rule("LIM-04")
def test_each_partition_has_slots_of_its_own(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", slots=2, per_partition=True), Limit("all", slots=5))
    enqueue_all(store, jobs_of("x", "x", "x", "y", "x", "y", "z", "z", "z"))
    claims = claim_some(store, 99)
    assert partitions_of(claims) == ["x", "x", "y", "y", "z"]
    complete(store, claims[0])
    assert partitions_of(claim_some(store, 99, worker="other")) == ["x"]


@pytest.mark.rule("LIM-04", "INV-004")
def test_a_full_partition_with_a_long_queue_does_not_hold_up_the_others(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", slots=1, per_partition=True))
    enqueue_all(store, jobs_of(*["flood"] * 500))
    enqueue_all(store, jobs_of("b", "a", "b"))
    enqueue_all(store, [NewJob("a", {}, 9, "api", partition="urgent")])
    assert partitions_of(claim_some(store, 2)) == ["urgent", "flood"]
    assert partitions_of(claim_some(store, 9, worker="other")) == ["b", "a"]
    assert claim_some(store, 9, worker="third") == []


@pytest.mark.rule("LIM-04")
def test_a_retry_keeps_its_partition_and_jobs_without_one_share_theirs(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", slots=1, per_partition=True))
    first, second, third = enqueue_all(store, jobs_of("x", "", ""))
    claims = claim_some(store, 9)
    assert ids_of(claims) == [first.id, second.id]
    fail(store, claims[0])
    retry = look(store, look(store, first.id).retried_by or "")
    assert retry.partition == "x"
    assert look(store, third.id).status == "QUEUED"


@pytest.mark.rule("LIM-05")
def test_a_rate_counts_the_starts_of_all_workers_and_survives_a_restart(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", rate=Rate(60, 60, 2)))
    enqueue_all(store, jobs_of(*[""] * 20))
    assert len(claim_some(store, 9, worker="one")) == 3
    assert claim_some(store, 9, worker="two") == []
    clock.advance(0.999)
    assert claim_some(open_store(), 9, worker="two") == []
    clock.advance(0.001)
    assert len(claim_some(open_store(), 9, worker="two")) == 1
    clock.advance(100)
    assert len(claim_some(store, 9, worker="three")) == 3


@pytest.mark.rule("LIM-05", "LIM-04")
def test_each_partition_has_a_rate_of_its_own(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", rate=Rate(1, 10), per_partition=True))
    enqueue_all(store, jobs_of("x", "x", "y", "x", "y"))
    assert partitions_of(claim_some(store, 9, worker="one")) == ["x", "y"]
    assert claim_some(store, 9, worker="two") == []
    clock.advance(10)
    assert partitions_of(claim_some(store, 9, worker="two")) == ["x", "y"]


@pytest.mark.rule("LIM-05")
def test_no_slot_is_held_for_want_of_rate_and_no_start_counted_for_want_of_a_slot(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store()
    declare(store, Limit("gpu", resource="api", slots=2), Limit("stories", type="a", rate=Rate(1, 10)))
    enqueue_all(store, jobs_of("", "", ""))
    enqueue_all(store, jobs_of("", "", type_="b"))
    claims = claim_some(store, 9)
    assert [claim.lease.type for claim in claims] == ["a", "b"]
    clock.advance(60)
    assert claim_some(store, 9, worker="other") == []
    for claim in claims:
        complete(store, claim)
    assert [claim.lease.type for claim in claim_some(store, 9, worker="other")] == ["a", "b"]


@pytest.mark.rule("LIM-05")
def test_a_turn_says_when_the_rate_permits_the_next_start_and_explain_does_too(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", rate=Rate(6, 60)))
    _, second = enqueue_all(store, jobs_of("", ""))
    result = store.write_sync(settle_and_claim, [], Vacancy("w", range(9), (), ["a"]))
    assert len(result.claims) == 1
    due = clock.now() + timedelta(seconds=10)
    assert result.next_ready_at is not None and timedelta() <= result.next_ready_at - due < timedelta(milliseconds=5)
    explained = store.read_sync(explain_job, second.id)
    codes = [reason["code"] for reason in explained["reasons"]]
    assert "rate_limited" in codes
    assert "api (6 in 60 s)" in explained["summary"]
    store.write_sync(set_limit, "api", {"rate": None, "slots": 5})
    assert ids_of(claim_some(store, 9, worker="other")) == [second.id]


@pytest.mark.rule("LIM-05")
def test_direct_requests_use_up_the_rate_too(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", rate=Rate(1, 10)))
    enqueue_all(store, jobs_of(""))
    store.write_sync(reserve, NewJob("a", resource="api"), "owner", 600)
    (served,) = claim_some(store, 9, worker="one")
    assert served.reservation is not None
    assert claim_some(store, 9, worker="two") == []
    clock.advance(10)
    assert len(claim_some(store, 9, worker="two")) == 1


@pytest.mark.rule("LIM-05", "QUE-07")
def test_old_instants_of_rates_are_pruned_and_nothing_changes_by_it(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", rate=Rate(1, 10), per_partition=True))
    enqueue_all(store, jobs_of("x", "y"))
    claim_some(store, 9)
    assert count(store, "rates") == 2
    store.write_sync(prune, clock.now())
    assert count(store, "rates") == 2
    clock.advance(60)
    store.write_sync(prune, clock.now())
    assert count(store, "rates") == 0


def fair_order(store: PersistenceAdapter, amount: int, at_once: int = 1) -> list[str]:
    """The partitions of the next jobs, each completed before the next claim."""
    order: list[str] = []
    while len(order) < amount:
        claims = claim_some(store, at_once)
        assert claims
        order += partitions_of(claims)
        for claim in claims:
            complete(store, claim)
    return order


@pytest.mark.rule("LIM-07")
def test_partitions_take_turns_however_long_their_queues_are(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", slots=9, fair=True))
    enqueue_all(store, jobs_of(*["x"] * 200, "y", "z", "y", "z", "y"))
    assert fair_order(store, 9) == ["x", "y", "z", "x", "y", "z", "x", "y", "x"]
    enqueue_all(store, jobs_of("z", "z", "a"))
    assert fair_order(store, 5) == ["z", "a", "x", "z", "x"]


@pytest.mark.rule("LIM-07")
def test_a_claim_of_many_gives_each_partition_its_share(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", slots=20, fair=True))
    enqueue_all(store, jobs_of(*["x"] * 100, *["y"] * 100, *["z"] * 3))
    claims = claim_some(store, 20)
    taken = partitions_of(claims)
    assert {partition: taken.count(partition) for partition in "xyz"} == {"x": 9, "y": 8, "z": 3}


@pytest.mark.rule("LIM-07", "INV-004")
def test_a_higher_priority_goes_before_any_turn_and_a_full_partition_is_passed_by(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", slots=1, per_partition=True, fair=True))
    enqueue_all(store, jobs_of("a", "b", "b"))
    enqueue_all(store, [NewJob("a", {}, 9, "api", partition="z")] * 2)
    assert partitions_of(claim_some(store, 1)) == ["z"]
    assert partitions_of(claim_some(store, 9, worker="other")) == ["a", "b"]
    assert claim_some(store, 9, worker="third") == []


@pytest.mark.rule("LIM-07", "INV-004")
def test_a_long_queue_of_one_partition_goes_before_lower_priorities(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", slots=500, fair=True))
    enqueue_all(store, [NewJob("a", {}, 9, "api", partition="x")] * 100)
    enqueue_all(store, jobs_of("y"))
    assert partitions_of(claim_some(store, 100)) == ["x"] * 100


@pytest.mark.rule("LIM-07")
def test_jobs_without_a_partition_take_their_turn_as_one(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, Limit("api", resource="api", slots=9, fair=True))
    enqueue_all(store, jobs_of(*["x"] * 5, "", "y", "", "y"))
    order = fair_order(store, 9)
    assert sorted(order[:3]) == ["", "x", "y"]
    assert sorted(order[3:6]) == ["", "x", "y"]
    assert order[6:] == ["x"] * 3
