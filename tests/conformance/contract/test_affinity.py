"""Affinity: a worker goes on with what it has loaded, while that makes nobody wait for long."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from holdbeat.domain.affinity import Affinity, AffinityTerms, Followed
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Claim
from holdbeat.observe.explain import explain_job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.claim import Vacancy, claim
from tests.conformance.acts import OpenStore, complete, enqueue_all, events_of, job_of_claim, rows

pytestmark = pytest.mark.rule("LIM-11")


class Machine:
    """A worker with one slot that remembers what it ran last."""

    def __init__(self, store: PersistenceAdapter, terms: AffinityTerms | None = None) -> None:
        self.store = store
        self.terms = terms or AffinityTerms()
        self.affinities: dict[str, Affinity] = {}

    def claim(self) -> Claim:
        vacancy = Vacancy("w", [0], types=("a", "b"), affinities=self.affinities, affinity_terms=self.terms)
        (claimed,) = self.store.write_sync(claim, vacancy)
        followed = Followed(self.affinities)
        followed.start([(claimed.lease.resource, job_of_claim(claimed).affinity)])
        self.affinities = followed.now
        return claimed

    def run(self, count: int) -> str:
        """The affinities of the jobs that it runs one after the other."""
        order = ""
        for _ in range(count):
            claimed = self.claim()
            order += job_of_claim(claimed).affinity or "-"
            complete(self.store, claimed)
        return order


def loads(models: str, priority: int = 0) -> list[NewJob]:
    return [NewJob("a", resource="gpu", priority=priority, affinity=model.strip("-")) for model in models]


def counted(store: PersistenceAdapter) -> list[tuple[object, ...]]:
    return rows(store, "SELECT resource, kept, switches FROM affinity_counts")


def test_a_worker_prefers_what_it_ran_last_and_changes_less_often(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=1")
    enqueue_all(store, loads("xyzxyzxyzxyz"))
    assert Machine(store).run(12) == "xxxxyyyyzzzz"
    assert counted(store) == [("gpu", 9, 2)]


def test_without_affinity_the_order_is_that_of_the_queue_and_switches_are_counted_all_the_same(
    open_store: OpenStore,
) -> None:
    store = open_store("resources:gpu=1")
    enqueue_all(store, loads("xyzxyz"))
    assert Machine(store, AffinityTerms(wait_s=60, run=1)).run(6) == "xyzxyz"
    assert counted(store) == [("gpu", 0, 5)]


def test_at_most_so_many_in_a_row(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=1")
    enqueue_all(store, loads("xyxxxxxxyy"))
    assert Machine(store, AffinityTerms(run=3)).run(10) == "xxxyyyxxxx", "and then on, if nobody else is there"


def test_who_has_waited_longer_than_the_limit_goes_first(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:gpu=1")
    enqueue_all(store, loads("xy"))
    machine = Machine(store)
    machine.run(1)
    clock.advance(30)
    enqueue_all(store, loads("xx"))
    assert machine.run(1) == "x"
    clock.advance(30.001)
    assert machine.run(2) == "yx"


def test_a_delay_is_no_wait_for_a_slot(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:gpu=1")
    enqueue_all(store, loads("x"))
    enqueue_all(store, [NewJob("a", resource="gpu", affinity="y", not_before=clock.now() + timedelta(hours=1))])
    machine = Machine(store)
    machine.run(1)
    clock.advance(3601)
    enqueue_all(store, loads("xx"))
    assert machine.run(1) == "x"
    clock.advance(60)
    assert machine.run(2) == "yx"


def test_a_higher_priority_is_never_passed(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=1")
    enqueue_all(store, loads("xxx"))
    machine = Machine(store)
    machine.run(1)
    enqueue_all(store, loads("y", priority=1))
    assert machine.run(3) == "yxx"


def test_jobs_without_an_affinity_change_nothing(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=1")
    enqueue_all(store, loads("x-x"))
    machine = Machine(store)
    assert machine.run(3) == "xx-"
    assert machine.affinities["gpu"] == Affinity("x", 2)


def test_a_preferred_job_far_behind_is_found(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=1")
    enqueue_all(store, loads("x" + "y" * 300 + "x"))
    assert Machine(store).run(3) == "xxy"


def test_explain_names_who_was_preferred_and_why(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=1")
    first, passed, preferred = enqueue_all(store, loads("xyx"))
    machine = Machine(store)
    complete(store, machine.claim())
    assert job_of_claim(machine.claim()).id == preferred.id
    reasons = {reason["code"]: reason for reason in store.read_sync(explain_job, passed.id)["reasons"]}
    assert reasons["affinity"]["preferred"] == preferred.id and reasons["affinity"]["affinity"] == "x"
    assert f"Job {preferred.id} went before it" in reasons["affinity"]["detail"]
    ((job_id, _, worker_id, data),) = events_of(store, "job.passed_by")
    assert (job_id, worker_id) == (passed.id, "w")
    assert json.loads(data)["run"] == 2
    assert first.id != preferred.id
