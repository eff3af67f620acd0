"""Limits are rows: what programs declare and operators set, and that every worker goes by it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.errors import Conflict, Invalid, NotFound
from holdbeat.domain.job import NewJob
from holdbeat.domain.limit import Limit, Limits, Origin
from holdbeat.domain.rate import Rate
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.changes import declare_limits, reset_limit, set_limit
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.reads.stats import resource_stats
from holdbeat.store.running.reservations import reserve
from holdbeat.store.running.unsettled_claims import held_claims
from tests.conformance.acts import OpenStore, claim_some, complete, enqueue_all, events_of


def declare(store: PersistenceAdapter, concurrency: str, *named: Limit, by: str = "w", works: bool = True) -> list[str]:
    limits = ConcurrencyPolicy.parse(concurrency).limits()
    return store.write_sync(declare_limits, limits, named, by=by, works=works)


def in_force(store: PersistenceAdapter) -> dict[str, int | None]:
    return {limit.name: limit.slots for limit in store.read_sync(limits_in_force)}


def changes_of(store: PersistenceAdapter) -> list[dict[str, Any]]:
    return [json.loads(row[3]) for row in events_of(store, "limit.changed")]


@pytest.mark.rule("LIM-01", "CAP-02", "CON-002")
def test_workers_with_other_settings_go_by_the_rows(open_store: OpenStore) -> None:
    one, other = open_store("resources:gpu=1"), open_store("resources:gpu=5")
    declare(one, "resources:gpu=1")
    enqueue_all(one, [NewJob("a", resource="gpu") for _ in range(6)])
    (running,) = claim_some(one, 6, worker="one")
    assert claim_some(other, 6, worker="other") == []
    assert [store.read_sync(resource_stats)["gpu"]["slots"] for store in (one, other)] == [1, 1]
    complete(one, running)
    assert len(claim_some(other, 6, worker="other")) == 1


@pytest.mark.rule("LIM-01")
def test_a_job_starts_only_if_every_limit_that_covers_it_has_room(open_store: OpenStore) -> None:
    store = open_store("unlimited")
    declare(
        store,
        "unlimited",
        Limit("gpu", resource="gpu", slots=3),
        Limit("stories", type="a", slots=2),
        Limit("gpu-b", resource="gpu", type="b", slots=1),
        Limit("all", slots=5),
    )
    jobs = [NewJob(type_, resource=resource) for type_, resource in (("a", "gpu"), ("b", "gpu"), ("c", "cpu"))]
    enqueue_all(store, jobs * 9)
    claims = claim_some(store, 99)
    counted = [(claim.lease.resource, claim.lease.type) for claim in claims]
    assert {kind: counted.count(kind) for kind in set(counted)} == {("gpu", "a"): 2, ("gpu", "b"): 1, ("cpu", "c"): 2}
    assert claim_some(store, 99, worker="other") == []


@pytest.mark.rule("LIM-02")
def test_the_newest_start_wins_and_an_event_names_what_changed(open_store: OpenStore) -> None:
    store = open_store()
    assert set(declare(store, "resources:gpu=1", by="first")) == {"gpu", "each:resource"}
    assert declare(store, "resources:gpu=1", by="second") == []
    assert changes_of(store) == []
    assert set(declare(store, "resources:gpu=3,cpu=2", by="third")) == {"gpu", "cpu"}
    assert set(declare(store, "resources:gpu=3", by="fourth")) == {"cpu"}
    collected = [
        (change["limit"], change.get("before"), change.get("after"), change["by"]) for change in changes_of(store)
    ]
    gpu = {"type": None, "rate": None, "per_partition": False, "fair": False, "weights": None, "resource": "gpu"}
    assert ("gpu", {**gpu, "slots": 1}, {**gpu, "slots": 3}, "third") in collected
    assert [(name, before is None, after is None) for name, before, after, _ in collected] == [
        ("cpu", True, False),
        ("gpu", False, False),
        ("cpu", False, True),
    ]


@pytest.mark.rule("LIM-02")
def test_a_limit_declared_by_name_stays_when_a_program_starts_that_does_not_know_it(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, "resources:gpu=1", Limit("api", resource="http", rate=Rate(60, 60.0, 5)))
    declare(store, "resources:gpu=2")
    assert in_force(store) == {"gpu": 2, "api": None, "each:resource": 1}
    [api] = [limit for limit in store.read_sync(limits_in_force) if limit.name == "api"]
    assert api.rate == Rate(60, 60.0, 5)


@pytest.mark.rule("LIM-02")
def test_a_server_without_slots_declares_only_where_nobody_has(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, "global:9", works=False)
    assert in_force(store) == {"global": 9}
    declare(store, "global:4")
    declare(store, "global:9", works=False)
    assert in_force(store) == {"global": 4}


@pytest.mark.rule("LIM-02")
def test_what_an_operator_set_wins_over_declarations_until_it_is_reset(open_store: OpenStore) -> None:
    store, other = open_store(), open_store()
    declare(store, "resources:gpu=1")
    assert other.read_sync(limits_in_force).slots_of("gpu") == 1
    changed = store.write_sync(set_limit, "gpu", {"slots": 2}, by="ann")
    assert (changed.resource, changed.slots, changed.origin) == ("gpu", 2, Origin.OPERATOR)
    declare(other, "resources:gpu=7")
    assert [in_force(item)["gpu"] for item in (store, other)] == [2, 2]
    store.write_sync(set_limit, "gpu", {"rate": {"count": 1, "per_s": 1}})
    [limit] = [limit for limit in other.read_sync(limits_in_force) if limit.name == "gpu"]
    assert (limit.slots, limit.rate) == (2, Rate(1, 1.0))
    restored = store.write_sync(reset_limit, "gpu", by="ann")
    assert restored is not None and restored.slots == 7
    assert [in_force(item)["gpu"] for item in (store, other)] == [7, 7]
    assert [(change["origin"], change.get("by")) for change in changes_of(store)][-1] == ("operator", "ann")


@pytest.mark.rule("LIM-01")
def test_the_version_of_a_limit_grows_with_each_change_of_it_and_with_no_other(open_store: OpenStore) -> None:
    store = open_store("unlimited")

    def versions() -> dict[str, int]:
        return {limit.name: limit.version for limit in store.read_sync(limits_in_force)}

    declare(store, "unlimited", Limit("api", resource="api", slots=1), Limit("other", slots=9))
    assert versions() == {"api": 1, "other": 1}
    declare(store, "unlimited", Limit("api", resource="api", slots=1), Limit("other", slots=9))
    assert versions() == {"api": 1, "other": 1}, "the same declaration changes nothing"
    declare(store, "unlimited", Limit("api", resource="api", slots=2))
    assert versions() == {"api": 2, "other": 1}
    store.write_sync(set_limit, "api", {"slots": 3})
    assert versions()["api"] == 3
    store.write_sync(set_limit, "api", {"slots": 4})
    assert versions()["api"] == 4
    reset = store.write_sync(reset_limit, "api")
    assert reset is not None and (reset.slots, reset.version) == (2, 5)
    assert versions() == {"api": 5, "other": 1}


@pytest.mark.rule("LIM-02")
def test_resets_that_make_no_sense_are_refused_in_words(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, "resources:gpu=1", Limit("api", resource="http", slots=3))
    with pytest.raises(NotFound, match="no limit nobody"):
        store.write_sync(reset_limit, "nobody")
    with pytest.raises(Conflict, match="setting concurrency"):
        store.write_sync(reset_limit, "gpu")
    assert store.write_sync(reset_limit, "api") is None
    assert "api" not in in_force(store)
    with pytest.raises(Invalid, match="slots must be a whole number"):
        store.write_sync(set_limit, "gpu", {"slots": "many"})
    assert in_force(store)["gpu"] == 1


@pytest.mark.rule("LIM-02")
def test_a_raised_limit_acts_on_the_next_claim_and_a_lowered_one_ends_nothing(open_store: OpenStore) -> None:
    store, worker = open_store(), open_store()
    topics: list[frozenset[str]] = []
    declare(store, "resources:gpu=1")
    enqueue_all(store, [NewJob("a", resource="gpu") for _ in range(9)])
    running = claim_some(worker, 9)
    assert len(running) == 1
    store.listen(topics.append)
    store.write_sync(set_limit, "gpu", {"slots": 3})
    assert any("ready" in topic_set for topic_set in topics)
    running += claim_some(worker, 9, first_slot=10)
    assert len(running) == 3
    store.write_sync(set_limit, "gpu", {"slots": 1})
    for claim in running[:2]:
        assert claim_some(worker, 9, first_slot=20) == []
        complete(worker, claim)
    assert claim_some(worker, 9, first_slot=20) == []
    complete(worker, running[2])
    assert len(claim_some(worker, 9, first_slot=20)) == 1


@pytest.mark.rule("LIM-02")
def test_a_change_that_was_rolled_back_is_never_mistaken_for_the_next_one(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, "resources:gpu=1")

    def set_read_and_fail(tx: Any) -> Limits:
        set_limit(tx, "gpu", {"slots": 8})
        assert limits_in_force(tx).slots_of("gpu") == 8
        raise Conflict("no")

    with pytest.raises(Conflict):
        store.write_sync(set_read_and_fail)
    assert in_force(store)["gpu"] == 1
    store.write_sync(set_limit, "gpu", {"slots": 2})
    assert in_force(store)["gpu"] == 2


@pytest.mark.rule("LIM-10")
def test_each_holder_of_a_resource_has_the_lowest_free_number_and_direct_requests_too(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, "resources:gpu=3")
    enqueue_all(store, [NewJob("a", resource="gpu") for _ in range(4)] + [NewJob("a", resource="other")])
    claims = claim_some(store, 9)
    assert [(claim.lease.resource, claim.lease.number) for claim in claims] == [
        ("gpu", 0),
        ("gpu", 1),
        ("gpu", 2),
        ("other", 0),
    ]
    complete(store, claims[1])
    store.write_sync(reserve, NewJob("a", resource="gpu"), "owner", 600)
    (served,) = claim_some(store, 9, worker="other")
    assert (served.reservation is not None, served.lease.number) == (True, 1)
    assert [claim.lease.number for claim in store.read_sync(held_claims, "other")] == [1]


@pytest.mark.rule("LIM-10")
def test_work_that_no_limit_of_its_resource_counts_has_no_number(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, "global:9")
    enqueue_all(store, [NewJob("a", resource="gpu"), NewJob("a")])
    assert [claim.lease.number for claim in claim_some(store, 9)] == [None, None]


@pytest.mark.rule("LIM-10", "LIM-02")
def test_after_a_limit_was_lowered_numbers_stay_below_it_and_are_never_given_twice(open_store: OpenStore) -> None:
    store = open_store()
    declare(store, "resources:gpu=4")
    enqueue_all(store, [NewJob("a", resource="gpu") for _ in range(9)])
    claims = claim_some(store, 9)
    store.write_sync(set_limit, "gpu", {"slots": 2})
    for claim in claims[:3]:
        complete(store, claim)
    assert claims[3].lease.number == 3, "it keeps its number, and one of the two slots"
    assert [claim.lease.number for claim in claim_some(store, 9, worker="other")] == [0]
    assert claim_some(store, 9, worker="third") == [], "a third holder is refused"
