"""The preview of a saved schedule begins with its plan: backoff, hints, clamps and pauses included."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdbeat.domain.schedule import Overlap, Schedule
from holdbeat.domain.schedule_preview import preview_of_saved
from holdbeat.domain.schedule_steps import after_run, fired, paused, replanned, with_hint
from holdbeat.domain.timetable import fires_at, next_run

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def adaptive(**fields: Any) -> Schedule:
    fields = {"interval_s": 60.0, **fields} if "cron" not in fields else fields
    schedule = Schedule("s1", "s", NOW, type="t", adaptive=True, overlap=Overlap.SKIP, **fields)
    return replanned(schedule, NOW).schedule


def times(schedule: Schedule, now: datetime = NOW, n: int = 3, *, in_flight: bool = False) -> list[datetime]:
    return [fire.at for fire in preview_of_saved(schedule, now, n, in_flight=in_flight)]


@pytest.mark.rule("TIME-08", "GOV-01")
def test_a_failing_schedule_shows_its_backoff_first_and_its_interval_after_a_success() -> None:
    schedule = adaptive()
    for _ in range(3):
        due = schedule.next_run_at
        assert due is not None
        schedule = after_run(fired(schedule, due, due), "FAILED", due, due, due).schedule
    due = schedule.next_run_at
    assert due == after(60 + 120 + 240 + 480)
    assert times(schedule, after(421)) == [due, due + timedelta(seconds=60), due + timedelta(seconds=120)]


@pytest.mark.rule("TIME-08", "TIME-05", "GOV-01")
def test_the_jitter_of_a_run_does_not_bring_the_next_one_nearer() -> None:
    schedule = adaptive(jitter_s=45.0)
    assert fires_at(schedule) != schedule.next_run_at
    assert times(schedule, n=4) == [after(60), after(120), after(180), after(240)]
    by_cron = adaptive(cron="* * * * *", jitter_s=45.0)
    assert times(by_cron, n=3) == [after(60), after(120), after(180)]


@pytest.mark.rule("TIME-08", "GOV-02")
def test_a_hinted_interval_counts_until_the_hint_ends() -> None:
    schedule = with_hint(adaptive(interval_s=600.0), NOW, interval_s=10, ttl_s=25).schedule
    assert times(schedule, n=4) == [after(10), after(20), after(620), after(1220)]


@pytest.mark.rule("TIME-08", "GOV-04")
def test_a_one_shot_is_shown_once() -> None:
    schedule = with_hint(adaptive(interval_s=600.0), NOW, next_run_at=after(90)).schedule
    assert times(schedule) == [after(90), after(690), after(1290)]


@pytest.mark.rule("TIME-08", "GOV-06")
def test_clamps_count_in_a_preview() -> None:
    assert times(adaptive(cron="* * * * *", min_interval_s=90.0)) == [after(90), after(180), after(270)]
    assert times(adaptive(interval_s=600.0, max_interval_s=60.0)) == [after(60), after(120), after(180)]


@pytest.mark.rule("TIME-08", "GOV-07", "TIME-10")
def test_a_pause_lies_before_the_first_fire_and_one_without_an_end_has_none() -> None:
    schedule = adaptive()
    assert times(paused(schedule, after(1000), None, NOW).schedule) == [after(1000), after(1060), after(1120)]
    assert times(paused(schedule, None, None, NOW).schedule) == []


@pytest.mark.rule("TIME-08", "GOV-09")
def test_in_flight_it_shows_what_follows_if_the_run_ends_now() -> None:
    schedule = adaptive()
    schedule = fired(schedule, after(60), after(60))
    assert times(schedule, after(70), in_flight=True) == [after(130), after(190), after(250)]


@pytest.mark.rule("TIME-08")
def test_cron_slots_of_an_adaptive_schedule_keep_their_marks() -> None:
    created = datetime(2026, 3, 28, 12, tzinfo=UTC)
    schedule = Schedule(
        "s1", "s", created, type="t", adaptive=True, overlap=Overlap.SKIP, cron="30 2 * * *", timezone="Europe/Vienna"
    )
    fires = preview_of_saved(replanned(schedule, created).schedule, created, 2)
    assert [fire.note for fire in fires] == ["gap", None]


@pytest.mark.rule("TIME-08", "TIME-10")
def test_a_plain_schedule_begins_with_its_pending_due_time_and_passes_over_its_pause() -> None:
    schedule = replanned(Schedule("s1", "s", NOW, type="t", interval_s=60.0), NOW).schedule
    assert times(schedule, after(61)) == [after(60), after(120), after(180)]
    held = paused(schedule, after(150), None, after(1)).schedule
    assert next_run(held) == fires_at(held) == after(180) and times(held, after(1)) == [
        after(180),
        after(240),
        after(300),
    ]
    assert times(replace(schedule, enabled=False, next_run_at=None), after(61)) == [after(120), after(180), after(240)]
