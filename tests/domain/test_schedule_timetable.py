"""Due times are a property of the schedule: a fixed grid, a window, jitter that moves no due time, previews."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.cron import Dst
from holdbeat.domain.errors import Invalid
from holdbeat.domain.governor import PlanInputs, plan
from holdbeat.domain.schedule import Overlap, Schedule
from holdbeat.domain.schedule_steps import replanned
from holdbeat.domain.timetable import clock_change, due_times, fire_at, jittered, next_due, preview, preview_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def schedule(**fields: Any) -> Schedule:
    return Schedule("s1", "s", NOW, type="t", **fields)


@pytest.mark.rule("TIME-09")
def test_an_interval_without_start_first_fires_one_interval_after_its_creation() -> None:
    every_minute = schedule(interval_s=60)
    assert next_due(every_minute, NOW) == after(60)
    assert next_due(every_minute, after(60)) == after(120)
    assert next_due(every_minute, after(61)) == after(120)


@pytest.mark.rule("TIME-09")
def test_an_interval_with_a_start_first_fires_at_the_start() -> None:
    from_start = schedule(interval_s=60, start_at=after(600))
    assert next_due(from_start, NOW) == after(600)
    assert next_due(from_start, after(600)) == after(660)


@pytest.mark.rule("TIME-09")
@given(st.integers(1000, 10_000_000), st.lists(st.integers(0, 10**11), max_size=5))
def test_an_interval_keeps_its_grid_whenever_it_is_asked(step_ms: int, moments_ms: list[int]) -> None:
    grid = schedule(interval_s=step_ms / 1000)
    for moment_ms in moments_ms:
        moment = NOW + timedelta(milliseconds=moment_ms)
        due = next_due(grid, moment)
        step = timedelta(milliseconds=step_ms)
        assert due is not None and due > moment
        assert due - moment <= step or due == NOW + step
        assert (due - NOW) % timedelta(milliseconds=step_ms) == timedelta()


@pytest.mark.rule("TIME-10")
def test_nothing_is_due_outside_start_and_end_and_both_ends_count() -> None:
    window = schedule(cron="0 * * * *", start_at=after(3600), end_at=after(3 * 3600))
    assert next_due(window, NOW) == after(3600)
    assert next_due(window, after(2 * 3600)) == after(3 * 3600)
    assert next_due(window, after(3 * 3600)) is None
    assert due_times(window, NOW, after(86400), 10).listed == (after(3600), after(7200), after(10800))
    grid = schedule(interval_s=3600, end_at=after(7200))
    assert due_times(grid, NOW, after(86400), 10).listed == (after(3600), after(7200))


@pytest.mark.rule("DEC-010")
def test_a_cron_schedule_follows_the_clocks_of_its_zone() -> None:
    berlin = schedule(cron="0 9 * * *", timezone="Europe/Berlin")
    assert next_due(berlin, NOW) == datetime(2026, 3, 2, 8, tzinfo=UTC)
    assert next_due(berlin, datetime(2026, 3, 29, 0, tzinfo=UTC)) == datetime(2026, 3, 29, 7, tzinfo=UTC)


@pytest.mark.rule("TIME-02")
def test_asking_from_a_due_time_never_gives_the_same_one_again() -> None:
    for item in (schedule(cron="* * * * *"), schedule(interval_s=7)):
        due: datetime | None = NOW
        seen = set()
        for _ in range(50):
            assert due is not None
            due = next_due(item, due)
            assert due not in seen
            seen.add(due)


@pytest.mark.rule("TIME-05")
@given(st.text(max_size=40), st.integers(0, 10**9), st.floats(0, 3600))
def test_jitter_is_the_same_every_time_and_never_early_nor_beyond_its_bound(
    schedule_id: str, offset_s: int, jitter_s: float
) -> None:
    due = after(offset_s)
    at = jittered(schedule_id, due, jitter_s)
    assert at == jittered(schedule_id, due, jitter_s)
    assert timedelta() <= at - due <= timedelta(seconds=jitter_s)
    assert at.microsecond % 1000 == 0


@pytest.mark.rule("TIME-05")
def test_jitter_spreads_many_schedules_evenly_over_its_width() -> None:
    seconds = [(jittered(f"schedule-{n}", NOW, 60) - NOW).total_seconds() for n in range(6000)]
    buckets = [sum(low <= at < low + 10 for at in seconds) for low in range(0, 60, 10)]
    assert min(buckets) > 800 and max(buckets) < 1200


@pytest.mark.rule("TIME-02")
def test_jitter_moves_the_firing_and_not_the_due_time() -> None:
    spread = replanned(schedule(interval_s=60, jitter_s=30), NOW).schedule
    assert spread.next_run_at == after(60)
    at = fire_at(spread)
    assert at is not None and after(60) <= at <= after(90) and at == jittered("s1", after(60), 30)


@pytest.mark.rule("TIME-05", "GOV-06")
def test_jitter_of_an_adaptive_schedule_spreads_its_baseline_alone_and_within_the_clamp() -> None:
    probe = schedule(interval_s=60, jitter_s=60, adaptive=True, overlap=Overlap.SKIP, last_run_at=NOW)
    probe = replanned(probe, NOW).schedule
    assert probe.next_run_at == after(60) and fire_at(probe) == jittered("s1", after(60), 60)
    probe.max_interval_s = 61
    assert (fire_at(probe) or NOW) <= after(61)
    probe.hint_next_run_at, probe.hint_next_run_expires_at = after(5), after(500)
    probe = replanned(probe, NOW).schedule
    assert fire_at(probe) == after(5), "a hinted time means what it says"
    held = schedule(interval_s=60, jitter_s=60, adaptive=True, overlap=Overlap.SKIP, paused_until=after(90))
    assert fire_at(replanned(held, NOW).schedule) == after(90), "and so does the end of a pause"
    assert fire_at(schedule(interval_s=60)) is None


@pytest.mark.rule("TIME-03")
@given(st.integers(1, 500), st.integers(0, 4000), st.integers(1, 300))
def test_listed_and_counted_due_times_are_all_there_are(step_s: int, length_s: int, limit: int) -> None:
    grid = schedule(interval_s=step_s)
    due = due_times(grid, NOW, after(length_s), limit)
    assert due.total == length_s // step_s and due.is_exact
    assert due.listed == tuple(after(n * step_s) for n in range(due.older + 1, due.total + 1))


@pytest.mark.rule("TIME-03")
def test_a_year_of_five_minutes_is_counted_exactly_across_both_clock_changes() -> None:
    busy = schedule(cron="*/5 * * * *", timezone="Europe/Berlin")
    due = due_times(busy, NOW, NOW + timedelta(days=365), 100)
    assert due.total == 365 * 288 + 1 and due.is_exact and len(due.listed) == 100
    assert (due.oldest, due.listed[-1]) == (NOW, NOW + timedelta(days=365))


@pytest.mark.rule("TIME-03")
def test_counting_by_days_agrees_with_walking_through() -> None:
    daily_pair = schedule(cron="*/7 5-22 * * *", timezone="America/New_York")
    since, until = NOW + timedelta(hours=7, minutes=3), NOW + timedelta(days=60, hours=3, minutes=11)
    walked, due = 0, next_due(daily_pair, since - timedelta(milliseconds=1))
    while due is not None and due <= until:
        walked, due = walked + 1, next_due(daily_pair, due)
    counted = due_times(daily_pair, since, until, 10)
    assert walked > 5010, "few enough to be walked, this would prove nothing"
    assert counted.total == walked and counted.is_exact


@pytest.mark.rule("TIME-03")
def test_what_is_too_much_to_count_is_said_to_be_a_lower_bound() -> None:
    busy = schedule(cron="* * * * *")
    due = due_times(busy, NOW, NOW + timedelta(days=3650), 5)
    assert not due.is_exact and 120_000 <= due.older < 130_000 and len(due.listed) == 5
    assert due.listed[-1] == NOW + timedelta(days=3650)
    assert due.oldest == NOW


@pytest.mark.rule("TIME-08")
def test_preview_marks_the_gap_and_the_fold() -> None:
    fires = preview_of(
        cron="30 2 * * *",
        interval_s=None,
        timezone="Europe/Berlin",
        dst=Dst.VIXIE,
        after=datetime(2026, 3, 28, 12, tzinfo=UTC),
        n=2,
    )
    assert [(fire.at.isoformat(), fire.note) for fire in fires] == [
        ("2026-03-29T01:00:00+00:00", "gap"),
        ("2026-03-30T00:30:00+00:00", None),
    ]
    autumn = preview(schedule(cron="30 2 * * *", timezone="Europe/Berlin"), datetime(2026, 10, 24, 12, tzinfo=UTC), 1)
    assert [fire.note for fire in autumn] == ["fold"]


@pytest.mark.rule("TIME-08")
def test_preview_of_an_interval_shows_local_times_without_notes() -> None:
    zone = ZoneInfo("Europe/Berlin")
    fires = preview_of(interval_s=90, cron=None, timezone="Europe/Berlin", dst=Dst.VIXIE, after=NOW, n=3)
    assert [fire.at for fire in fires] == [after(90), after(180), after(270)]
    assert all(fire.local == fire.at and fire.local.tzinfo == zone and fire.note is None for fire in fires)


@pytest.mark.rule("TIME-08")
def test_preview_ends_where_the_schedule_ends_and_refuses_impossible_requests() -> None:
    assert len(preview(schedule(cron="0 * * * *", end_at=after(7200)), NOW, 50)) == 2
    begins = preview(schedule(cron="0 * * * *", start_at=after(86400)), NOW, 1)
    assert begins[0].at == after(86400)
    for n in (0, -1, 1001):
        with pytest.raises(Invalid):
            preview(schedule(cron="0 * * * *"), NOW, n)
    with pytest.raises(Invalid):
        preview_of(cron=None, interval_s=None, timezone="UTC", dst=Dst.VIXIE, after=NOW, n=1)


@pytest.mark.rule("TIME-06", "DEC-010")
def test_a_changed_zone_re_plans_at_once_and_other_edits_move_nothing() -> None:
    berlin = replanned(schedule(cron="0 9 * * *", timezone="Europe/Berlin"), NOW).schedule
    renamed = schedule(cron="0 9 * * *", timezone="Europe/Berlin", next_run_at=berlin.next_run_at, priority=5)
    assert replanned(renamed, after(5), previous=berlin).schedule.next_run_at == berlin.next_run_at
    utc = schedule(cron="0 9 * * *", next_run_at=berlin.next_run_at)
    assert replanned(utc, after(5), previous=berlin).schedule.next_run_at == datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.mark.rule("TIME-06")
def test_an_edit_at_the_very_instant_of_firing_does_not_lose_the_due_time() -> None:
    due = schedule(cron="* * * * *", next_run_at=after(60))
    for changed in (schedule(cron="*/2 * * * *"), schedule(cron="* * * * *", dst=Dst.SKIP)):
        changed.next_run_at = due.next_run_at
        planned = replanned(changed, after(60.05), previous=due).schedule
        assert planned.next_run_at == (after(120) if changed.cron == "*/2 * * * *" else after(60))
    renamed = schedule(cron="* * * * *", priority=1, next_run_at=after(60))
    assert replanned(renamed, after(60.05), previous=due).schedule.next_run_at == after(60)


@pytest.mark.rule("TIME-10")
def test_disabling_plans_nothing_and_enabling_makes_up_for_nothing() -> None:
    enabled = replanned(schedule(cron="* * * * *"), NOW).schedule
    disabled = replanned(schedule(cron="* * * * *", enabled=False), after(30), previous=enabled).schedule
    assert disabled.next_run_at is None
    again = replanned(schedule(cron="* * * * *"), after(86_430), previous=disabled).schedule
    assert again.next_run_at == after(86_460)


@pytest.mark.rule("GOV-06")
def test_a_cron_expression_that_never_comes_again_leaves_the_max_clamp_alone() -> None:
    over = datetime(8999, 12, 31, 23, 30, tzinfo=UTC)
    probe = schedule(cron="0 0 1 1 *", adaptive=True, overlap=Overlap.SKIP)
    assert plan(PlanInputs(probe, last_start=over), over).next_run_at is None
    probe.max_interval_s = 60
    assert plan(PlanInputs(probe, last_start=over), over).next_run_at == over + timedelta(seconds=60)


@pytest.mark.rule("TIME-08")
@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("Europe/Berlin", ("2026-03-29T01:59:59+01:00", "2026-03-29T03:00:00+02:00")),
        ("America/New_York", ("2026-03-08T01:59:59-05:00", "2026-03-08T03:00:00-04:00")),
        ("Australia/Lord_Howe", ("2026-04-05T01:59:59+11:00", "2026-04-05T01:30:00+10:30")),
        ("America/Santiago", ("2026-04-04T23:59:59-03:00", "2026-04-04T23:00:00-04:00")),
        ("UTC", None),
        ("Asia/Tokyo", None),
    ],
)
def test_a_preview_knows_when_the_clocks_change_next(zone: str, shown: tuple[str, str] | None) -> None:
    fires = preview_of(cron="* * * * *", interval_s=None, timezone=zone, dst=Dst.VIXIE, after=NOW, n=3)
    change = clock_change(fires)
    assert (change and tuple(item.isoformat() for item in change)) == shown
    assert clock_change([]) is None
