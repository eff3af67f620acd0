"""Jitter moves when a due time starts: neither the due times themselves nor how late one is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import mean
from typing import Any

import pytest

from holdbeat.domain.occurrence import due_work
from holdbeat.domain.schedule import Overlap, Schedule
from holdbeat.domain.schedule_steps import after_run, fired, replanned
from holdbeat.domain.timetable import fire_at

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def adaptive(**fields: Any) -> Schedule:
    schedule = Schedule(
        "s1",
        "s",
        NOW,
        type="t",
        adaptive=True,
        overlap=Overlap.SKIP,
        **{"interval_s": 30.0, "jitter_s": 20.0, **fields},
    )
    return replanned(schedule, NOW).schedule


def starts_of(schedule: Schedule, runs: int, run_s: float) -> list[datetime]:
    """When its runs start, each fired at its moment and started at once."""
    starts = []
    for _ in range(runs):
        due, moment = schedule.next_run_at, fire_at(schedule)
        assert due is not None and moment is not None
        schedule = fired(schedule, due, moment)
        starts.append(moment)
        schedule = after_run(schedule, "COMPLETED", moment, due, moment + timedelta(seconds=run_s)).schedule
    return starts


@pytest.mark.rule("GOV-01", "TIME-05")
@pytest.mark.parametrize("run_s", [0.0, 5.0])
def test_jitter_does_not_stretch_an_adaptive_interval(run_s: float) -> None:
    starts = starts_of(adaptive(), 201, run_s)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(starts)]
    assert mean(gaps) == pytest.approx(30, abs=1)
    assert all(10 <= gap <= 50 for gap in gaps) and max(gaps) - min(gaps) > 10, "yet each start is spread"


@pytest.mark.rule("GOV-05", "TIME-05")
def test_a_run_longer_than_the_interval_still_counts_from_its_end_with_jitter() -> None:
    schedule = adaptive()
    due, moment = schedule.next_run_at, fire_at(schedule)
    assert due is not None and moment is not None
    end = moment + timedelta(seconds=31)
    schedule = after_run(fired(schedule, due, moment), "COMPLETED", moment, due, end).schedule
    assert schedule.next_run_at == end + timedelta(seconds=30)


@pytest.mark.rule("GOV-03", "TIME-05")
def test_a_hinted_interval_counts_from_the_start_itself() -> None:
    schedule = adaptive()
    due, moment = schedule.next_run_at, fire_at(schedule)
    assert due is not None and moment is not None and moment > due
    schedule = replace(schedule, hint_interval_s=60.0, hint_interval_expires_at=NOW + timedelta(hours=1))
    schedule = after_run(fired(schedule, due, moment), "COMPLETED", moment, due, moment).schedule
    assert schedule.next_run_at == moment + timedelta(seconds=60)


@pytest.mark.rule("TIME-03", "TIME-05")
@pytest.mark.parametrize("is_adaptive", [False, True])
def test_jitter_is_no_lateness(is_adaptive: bool) -> None:
    schedule = (
        adaptive()
        if is_adaptive
        else replanned(Schedule("s1", "s", NOW, type="t", interval_s=30.0, jitter_s=20.0), NOW).schedule
    )
    moment = fire_at(schedule)
    assert moment is not None and schedule.next_run_at is not None and moment > schedule.next_run_at
    [verdict] = due_work(schedule, moment + timedelta(seconds=2)).verdicts
    assert (verdict.due_at, verdict.late_s) == (schedule.next_run_at, 2.0)


@pytest.mark.rule("GOV-09")
def test_while_a_job_is_in_flight_the_decision_names_no_next_run() -> None:
    schedule = adaptive()
    assert schedule.next_run_at is not None
    schedule = fired(schedule, schedule.next_run_at, NOW + timedelta(seconds=60))
    assert schedule.next_run_at is None
    assert schedule.last_decision is not None and schedule.last_decision["next_run_at"] is None
    assert schedule.last_decision["sentence"] == "A job of it is unfinished: the next run is planned when that ends."


@pytest.mark.rule("GOV-01")
@pytest.mark.parametrize(("failures", "words"), [(1, "1 failure in a row"), (2, "2 failures in a row")])
def test_the_decision_counts_failures_in_proper_english(failures: int, words: str) -> None:
    schedule = replanned(replace(adaptive(jitter_s=0.0), failure_count=failures), NOW).schedule
    assert schedule.last_decision is not None and words in schedule.last_decision["sentence"]
