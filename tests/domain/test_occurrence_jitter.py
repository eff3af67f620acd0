"""Jitter and clocks that went back, as due_work and the timetable see them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.occurrence import due_work
from holdbeat.domain.schedule import CatchUp, Schedule
from holdbeat.domain.timetable import jittered, next_due

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.rule("TIME-02", "TIME-05")
@given(st.integers(0, 3600), st.lists(st.integers(1, 900), min_size=1, max_size=60))
def test_with_any_jitter_every_due_time_is_judged_once_in_order_and_none_before_its_moment(
    jitter_s: int, steps_s: list[int]
) -> None:
    schedule = Schedule("s1", "s", NOW, type="t", cron="*/5 * * * *", jitter_s=jitter_s, catch_up=CatchUp.ALL)
    schedule.next_run_at = next_due(schedule, NOW)
    now, judged = NOW, []
    for step_s in steps_s:
        now += timedelta(seconds=step_s)
        work = due_work(schedule, now)
        assert all(jittered("s1", verdict.due_at, jitter_s) <= now for verdict in work.verdicts)
        judged += [verdict.due_at for verdict in work.verdicts]
        schedule.next_run_at = work.next_run_at
    assert judged == [NOW + timedelta(minutes=5 * n) for n in range(1, len(judged) + 1)]
    assert schedule.next_run_at == NOW + timedelta(minutes=5 * (len(judged) + 1))


@pytest.mark.rule("TIME-03", "TIME-05")
@given(st.integers(61, 3600))
def test_a_due_time_that_jitter_moved_is_not_late(jitter_s: int) -> None:
    schedule = Schedule("s1", "s", NOW, type="t", interval_s=3600, jitter_s=jitter_s, catch_up=CatchUp.NONE)
    due = NOW + timedelta(hours=1)
    schedule.next_run_at = due
    work = due_work(schedule, jittered("s1", due, jitter_s))
    assert [(verdict.due_at, verdict.fires) for verdict in work.verdicts] == [(due, True)]


@pytest.mark.rule("TIME-09")
@given(st.integers(1, 86_400), st.integers(1, 10_000_000))
def test_before_its_creation_an_interval_goes_on_with_its_grid_so_that_nothing_stalls(step_s: int, back_s: int) -> None:
    schedule = Schedule("s1", "s", NOW, type="t", interval_s=step_s)
    moment = NOW - timedelta(seconds=back_s)
    due = next_due(schedule, moment)
    assert due is not None and moment < due <= moment + timedelta(seconds=step_s)
    assert (NOW - due) % timedelta(seconds=step_s) == timedelta()
    schedule.start_at = NOW
    assert next_due(schedule, moment) == NOW, "but not before start_at"
