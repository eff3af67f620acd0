"""Jobs that weigh more than one slot of their resource."""

from __future__ import annotations

import pytest

from holdbeat.domain.job import NewJob
from holdbeat.domain.limit import Limit
from holdbeat.observe.explain import explain_job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.changes import declare_limits, set_limit
from holdbeat.store.reads.limit_figures import limit_figures
from holdbeat.store.running.reservations import reserve
from tests.conformance.acts import OpenStore, claim_some, complete, enqueue_all, enqueue_one, fail, ids_of, look

pytestmark = pytest.mark.rule("LIM-09")


def heavy(weight: int, **fields: object) -> NewJob:
    return NewJob("a", resource="gpu", weight=weight, **fields)  # type: ignore[arg-type]


def used(store: PersistenceAdapter) -> dict[str, int]:
    return {limit_figure.limit.name: limit_figure.used for limit_figure in store.read_sync(limit_figures)}


def test_a_job_takes_as_many_slots_of_its_resource_as_it_weighs_and_one_of_other_limits(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=4")
    store.write_sync(declare_limits, (), [Limit("gpu", resource="gpu", slots=4), Limit("all", slots=9)], by="w")
    first, second, third = enqueue_all(store, [heavy(3), heavy(1), heavy(1)])
    claims = claim_some(store, 9)
    assert ids_of(claims) == [first.id, second.id]
    assert (used(store)["gpu"], used(store)["all"]) == (4, 2)
    assert claims[0].lease.slot_numbers == (0, 1, 2) and claims[1].lease.slot_numbers == (3,)
    complete(store, claims[0])
    (last,) = claim_some(store, 9, first_slot=5)
    assert last.job is not None and last.job.id == third.id and last.lease.slot_numbers == (0,)


def test_a_heavy_job_at_the_head_is_waited_for_and_not_passed_by(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=3,default=9")
    light = enqueue_all(store, [heavy(1), heavy(1)])
    running = claim_some(store, 9)
    assert len(running) == len(light)
    big = enqueue_one(store, "a", resource="gpu", weight=3, priority=5)
    enqueue_all(store, [heavy(1)] * 5)
    enqueue_all(store, [NewJob("b", resource="gpu")] * 5)
    other = enqueue_one(store, "b")
    assert ids_of(claim_some(store, 9, worker="two")) == [other.id], "one slot of gpu is free, and kept"
    complete(store, running[0])
    assert claim_some(store, 9, worker="two", first_slot=1) == []
    complete(store, running[1])
    assert ids_of(claim_some(store, 9, worker="two", first_slot=1)) == [big.id]
    assert claim_some(store, 9, worker="three") == []


def test_a_job_that_weighs_more_than_the_limit_has_holds_up_nobody(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=2")
    giant = enqueue_one(store, "a", resource="gpu", weight=3)
    light = enqueue_all(store, [heavy(1), heavy(1)])
    assert ids_of(claim_some(store, 9)) == [job.id for job in light]
    reasons = store.read_sync(explain_job, giant.id)["reasons"]
    assert reasons[0]["code"] == "resource_full" and "weighs 3" in reasons[0]["detail"]


def test_limits_that_are_raised_let_it_start(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=2")
    giant = enqueue_one(store, "a", resource="gpu", weight=3)
    assert claim_some(store, 9) == []
    store.write_sync(set_limit, "gpu", {"resource": "gpu", "slots": 3})
    assert ids_of(claim_some(store, 9)) == [giant.id]


def test_a_direct_request_weighs_as_its_type_does(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=3")
    store.write_sync(reserve, heavy(2), "owner", 600)
    enqueue_all(store, [heavy(1)] * 3)
    claims = claim_some(store, 9)
    assert [claim.lease.reservation_id is not None for claim in claims] == [True, False]
    assert used(store)["gpu"] == 3


def test_a_heavy_direct_request_has_the_next_slots(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=2")
    enqueue_all(store, [heavy(1)] * 4)
    running = claim_some(store, 9)
    store.write_sync(reserve, heavy(2), "owner", 600)
    complete(store, running[0])
    assert claim_some(store, 9, worker="two") == []
    complete(store, running[1])
    (claim,) = claim_some(store, 9, worker="two")
    assert claim.lease.reservation_id is not None


def test_a_retry_weighs_as_much(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=2")
    job = enqueue_one(store, "a", resource="gpu", weight=2)
    fail(store, claim_some(store, 1)[0])
    assert look(store, look(store, job.id).retried_by or "").weight == 2
