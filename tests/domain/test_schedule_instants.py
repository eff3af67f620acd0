"""Instants of a schedule that come without an offset, and how much jitter a timetable can bear."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdbeat.domain.cron import Cron
from holdbeat.domain.errors import Invalid
from holdbeat.domain.schedule_edit import created, edited
from holdbeat.domain.schedule_steps import paused, with_hint

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
VIENNA = {"name": "s", "type": "t", "interval_s": 60, "timezone": "Europe/Vienna"}


@pytest.mark.rule("DEC-010")
@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-03-02T09:00", datetime(2026, 3, 2, 8, tzinfo=UTC)),
        ("2026-07-02T09:00:00", datetime(2026, 7, 2, 7, tzinfo=UTC)),
        ("2026-03-02", datetime(2026, 3, 1, 23, tzinfo=UTC)),
        ("2026-03-02T09:00Z", datetime(2026, 3, 2, 9, tzinfo=UTC)),
        ("2026-03-02T09:00+05:00", datetime(2026, 3, 2, 4, tzinfo=UTC)),
        ("2026-03-29T02:30", datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
        ("2026-10-25T02:30", datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
    ],
)
def test_an_instant_without_an_offset_is_wall_time_in_the_zone_of_the_schedule(text: str, instant: datetime) -> None:
    schedule = created("1", {**VIENNA, "start_at": text}, NOW)
    assert schedule.start_at == instant
    assert edited(schedule, {"end_at": "2030-01-01T00:00"}).end_at == datetime(2029, 12, 31, 23, tzinfo=UTC)
    both = edited(schedule, {"start_at": "2026-03-02T09:00", "timezone": "America/New_York"})
    assert both.start_at == datetime(2026, 3, 2, 14, tzinfo=UTC), "the zone of the same request counts"
    assert edited(schedule, {"timezone": "America/New_York"}).start_at == instant, "an instant stays what it is"


@pytest.mark.rule("DEC-010")
def test_the_end_of_a_pause_and_the_time_of_a_hint_are_in_that_zone_too() -> None:
    schedule = created("1", {**VIENNA, "adaptive": True}, NOW)
    assert paused(schedule, "2026-03-02T09:00", None, NOW).schedule.paused_until == datetime(2026, 3, 2, 8, tzinfo=UTC)
    hinted = with_hint(schedule, NOW, next_run_at="2026-03-02T09:00").schedule
    assert hinted.hint_next_run_at == datetime(2026, 3, 2, 8, tzinfo=UTC)


@pytest.mark.rule("DEC-010")
def test_a_zone_that_is_gone_matters_only_where_it_is_needed() -> None:
    schedule = created("1", VIENNA, NOW)
    schedule.timezone = "Mars/Phobos"
    assert paused(schedule, "2026-03-02T09:00Z", None, NOW).schedule.paused_until is not None
    with pytest.raises(Invalid) as refusal:
        paused(schedule, "2026-03-02T09:00", None, NOW)
    assert refusal.value.field == "timezone"


@pytest.mark.parametrize("value", [datetime(2026, 3, 2, 9), "soon", 5, "2026-13-01T00:00"])  # noqa: DTZ001
def test_what_is_no_instant_is_refused_and_so_is_a_datetime_without_a_zone(value: Any) -> None:
    with pytest.raises(Invalid) as refusal:
        created("1", {**VIENNA, "start_at": value}, NOW)
    assert (refusal.value.code, refusal.value.field) == ("invalid_instant", "start_at")


@pytest.mark.rule("TIME-05")
@pytest.mark.parametrize(
    ("cron", "step_s"),
    [
        ("* * * * *", 60),
        ("*/5 * * * *", 300),
        ("0,50 * * * *", 600),
        ("0 */2 * * *", 7200),
        ("0,59 0,23 * * *", 60),
        ("30 2 * * *", 86_400),
        ("@hourly", 3600),
    ],
)
def test_jitter_beyond_the_least_time_between_two_slots_is_refused(cron: str, step_s: int) -> None:
    assert Cron.parse(cron).shortest_step.total_seconds() == step_s
    fields = {"name": "s", "type": "t", "cron": cron}
    schedule = created("1", {**fields, "jitter_s": min(step_s, 3600)}, NOW)
    if step_s < 3600:
        with pytest.raises(Invalid, match="least time between two due times") as refusal:
            created("1", {**fields, "jitter_s": step_s + 0.001}, NOW)
        assert (refusal.value.code, refusal.value.field) == ("jitter_exceeds_interval", "jitter_s")
        with pytest.raises(Invalid, match="least time between two due times"):
            edited(schedule, {"jitter_s": 3600})
        with pytest.raises(Invalid, match="least time between two due times"):
            edited(created("1", {**fields, "cron": "@daily", "jitter_s": 3600}, NOW), {"cron": cron})
