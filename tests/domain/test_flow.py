"""Flow, decided in the domain: weights, throttles, affinity, preemption and policies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdbeat.domain.affinity import Affinity, AffinityTerms, Followed, preferred_more
from holdbeat.domain.capacity import Capacity, Interruptible, Place, Throttle, Usage, throttle_of, to_interrupt
from holdbeat.domain.limit import Limit, Limits
from holdbeat.domain.policy import Policy, Work

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = Limits([Limit("gpu", resource="gpu", slots=4), Limit("all", slots=3)])


@pytest.mark.rule("LIM-09")
def test_limits_by_resource_count_what_work_weighs_and_others_count_it_once() -> None:
    capacity = Capacity(LIMITS, [Usage("gpu", "a", 1, "", 3)])
    assert capacity.free("gpu", "a") == 1
    assert capacity.free_for_jobs("gpu", "a", "", weight=2) == 0
    assert capacity.free("other", "a") == 2


@pytest.mark.rule("LIM-09")
def test_slots_are_kept_for_a_heavy_job_only_if_it_can_ever_have_as_many() -> None:
    capacity = Capacity(LIMITS, [Usage("gpu", "a", 1, "", 1)])
    capacity.keep_for("gpu", "a", "", 5)
    assert capacity.free("gpu", "a") == 2
    capacity.keep_for("gpu", "a", "", 4)
    assert capacity.free("gpu", "a") == 0
    assert capacity.free("other", "a") == 2, "what it does not wait for goes on"


@pytest.mark.rule("LIM-06")
def test_a_throttle_holds_for_one_partition_until_its_end() -> None:
    until = 100.0
    for now, free in ((99.9, 0), (100.0, 3)):
        capacity = Capacity(LIMITS, (), now=now)
        capacity.learn_throttles({Throttle("gpu", "", "x"): until})
        assert capacity.free("gpu", "a", "x") == free
        assert capacity.free("gpu", "a", "y") == 3
        assert capacity.next_start("gpu", "a", "x") == (until if free == 0 else None)


@pytest.mark.rule("LIM-06")
@pytest.mark.parametrize(
    ("limit", "key", "type_"),
    [
        (Limit("gpu", resource="gpu"), "gpu", ""),
        (Limit("each", resource="*"), "each/gpu", ""),
        (Limit("story", type="story"), "story", ""),
        (Limit("all"), "all", "story"),
        (Limit("default", resource="default"), "default", "story"),
        (Limit("each", resource="*"), "each/http", "story"),
    ],
)
def test_a_limit_that_stands_for_no_real_thing_holds_back_the_same_type_alone(
    limit: Limit, key: str, type_: str
) -> None:
    assert throttle_of(key, limit, "story", "x") == Throttle(key, type_, "x")


@pytest.mark.rule("LIM-11")
def test_an_affinity_is_preferred_until_somebody_has_waited_or_enough_have_run() -> None:
    terms = AffinityTerms(wait_s=60, run=5)
    assert preferred_more(Affinity("x", 2), terms, 60.0) == 3
    assert preferred_more(Affinity("x", 2), terms, 60.1) == 0
    assert preferred_more(Affinity("x", 7), terms, 0.0) == 0


@pytest.mark.rule("LIM-11")
def test_changes_are_counted_by_resource_and_jobs_without_an_affinity_do_not_matter() -> None:
    followed = Followed({"gpu": Affinity("x", 1)})
    followed.start([("gpu", "x"), ("gpu", ""), ("gpu", "y"), ("tpu", "z"), ("gpu", "y")])
    assert followed.now == {"gpu": Affinity("y", 2), "tpu": Affinity("z", 1)}
    assert (followed.kept, followed.switches) == ({"gpu": 2}, {"gpu": 1})


def run(name: str, priority: int, age_s: float, slots: int = 1) -> Interruptible:
    return Interruptible(name, name, priority, NOW - timedelta(seconds=age_s), {Place("gpu"): slots})


@pytest.mark.rule("LIM-13")
def test_of_the_lowest_priority_the_newest_is_interrupted_and_no_more_than_needed() -> None:
    running = [run("old", 0, 60), run("new", 0, 1), run("higher", 5, 1)]
    assert [item.lease_id for item in to_interrupt({Place("gpu"): 1}, 9, running)] == ["new"]
    assert [item.lease_id for item in to_interrupt({Place("gpu"): 3}, 9, running)] == ["new", "old", "higher"]
    assert to_interrupt({Place("gpu"): 0}, 9, running) == []


@pytest.mark.rule("LIM-13")
def test_nobody_is_interrupted_in_vain_or_by_equals() -> None:
    running = [run("a", 0, 1), run("b", 5, 1)]
    assert to_interrupt({Place("gpu"): 2}, 5, running) == [], "b has the same priority, and a alone is not enough"
    assert to_interrupt({Place("cpu"): 1}, 9, running) == [], "they hold nothing of it"
    assert len(to_interrupt({Place("gpu"): 2}, None, running)) == 2, "a direct request goes before every job"


@pytest.mark.rule("LIM-03")
def test_a_policy_that_says_nothing_declares_nothing_and_lets_everything_start() -> None:
    assert Policy().limits() == {}
    assert Policy().may_start(Work("a", "gpu"), [Work("b", "gpu")], NOW)
