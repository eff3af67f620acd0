"""API-06: when a job's turn will probably come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.estimate import Ahead, Execution, estimated_start

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MEAN_S = {"short": 10.0, "long": 100.0}


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def line(*types: str) -> list[Ahead]:
    return [Ahead(type_) for type_ in types]


def running(type_: str, since_s: float) -> Execution:
    return Execution(type_, NOW - timedelta(seconds=since_s))


@pytest.mark.rule("API-06")
def test_one_slot_is_free_after_all_that_runs_and_stands_ahead() -> None:
    start = estimated_start(NOW, slots=1, running=[running("short", 4)], ahead=line("short", "long"), mean_s=MEAN_S)
    assert start == after(6 + 10 + 100)


@pytest.mark.rule("API-06")
def test_several_slots_are_filled_by_whoever_is_free_first() -> None:
    busy = [running("long", 0), running("short", 0)]
    assert estimated_start(NOW, slots=2, running=busy, ahead=line("short", "short"), mean_s=MEAN_S) == after(30)
    assert estimated_start(NOW, slots=3, running=busy, ahead=[], mean_s=MEAN_S) == NOW


@pytest.mark.rule("API-06")
def test_work_that_takes_longer_than_usual_is_expected_to_end_any_moment() -> None:
    assert estimated_start(NOW, slots=1, running=[running("short", 99)], ahead=[], mean_s=MEAN_S) == NOW


@pytest.mark.rule("API-06")
def test_a_lowered_limit_waits_for_the_surplus_to_end() -> None:
    busy = [running("short", 0), running("long", 0)]
    assert estimated_start(NOW, slots=1, running=busy, ahead=[], mean_s=MEAN_S) == after(100)


@pytest.mark.rule("API-06")
def test_what_is_not_known_is_not_guessed() -> None:
    assert estimated_start(NOW, slots=1, running=[], ahead=line("new"), mean_s=MEAN_S) is None
    assert estimated_start(NOW, slots=1, running=[running("new", 1)], ahead=[], mean_s=MEAN_S) is None
    assert estimated_start(NOW, slots=0, running=[], ahead=[], mean_s=MEAN_S) is None


@pytest.mark.rule("API-06")
def test_nothing_starts_before_its_time_even_without_a_limit() -> None:
    for slots in (None, 1):
        assert estimated_start(NOW, slots=slots, running=[], ahead=[], mean_s={}, not_before=after(60)) == after(60)
    assert estimated_start(NOW, slots=None, running=[], ahead=line("new"), mean_s={}, not_before=after(-60)) == NOW


@pytest.mark.rule("API-06")
@given(st.integers(1, 5), st.lists(st.sampled_from(["short", "long"]), max_size=20))
def test_more_slots_never_make_it_later_and_a_longer_line_never_sooner(slots: int, types: list[str]) -> None:
    start = estimated_start(NOW, slots=slots, running=[], ahead=line(*types), mean_s=MEAN_S)
    more = estimated_start(NOW, slots=slots + 1, running=[], ahead=line(*types), mean_s=MEAN_S)
    longer = estimated_start(NOW, slots=slots, running=[], ahead=line(*types, "short"), mean_s=MEAN_S)
    assert start is not None and more is not None and longer is not None
    assert more <= start <= longer


@pytest.mark.rule("API-06", "LIM-09")
def test_heavy_work_takes_as_many_slots_as_it_weighs() -> None:
    busy = [running("short", 0), Execution("long", NOW, 2)]
    assert estimated_start(NOW, slots=3, running=busy, ahead=[], mean_s=MEAN_S) == after(10)
    assert estimated_start(NOW, slots=3, running=busy, ahead=[], mean_s=MEAN_S, weight=2) == after(100)
    heavy = [Ahead("short", 3)]
    assert estimated_start(NOW, slots=3, running=busy, ahead=heavy, mean_s=MEAN_S) == after(110)
    assert estimated_start(NOW, slots=2, running=[], ahead=heavy, mean_s=MEAN_S) == NOW, "passed by"
    assert estimated_start(NOW, slots=2, running=[], ahead=[], mean_s=MEAN_S, weight=3) is None
