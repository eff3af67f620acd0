"""Jitter on both stores: a due time whose moment has not come yet is not lost, and is shown as what it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from holdbeat.domain.clock import ManualClock, from_iso, iso
from holdbeat.domain.timetable import jittered
from holdbeat.domain.views import schedule_json
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.schedules.schedule_reports import preview_schedule
from holdbeat.store.schedules.schedules import (
    disable_schedule,
    enable_schedule,
    patch_schedule,
    pause_schedule,
    resume_schedule,
)
from tests.conformance.acts import claim_all, complete
from tests.conformance.schedule_acts import (
    assert_each_due_time_once,
    fire,
    fire_all,
    make,
    make_adaptive,
    occurrences,
    seen,
    verdicts,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.mark.rule("TIME-02", "TIME-06")
def test_disabled_and_enabled_between_a_due_time_and_its_moment_the_due_time_has_a_row(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, interval_s=10, jitter_s=10)
    toggled = 0
    for number in range(1, 14):
        while clock.now() < at(10 * number) + timedelta(seconds=0.2):
            clock.advance(0.1)
            fire(store)
        if jittered(schedule.id, at(10 * number), 10) <= clock.now():
            continue
        toggled += 1
        store.write_sync(disable_schedule, "s")
        store.write_sync(enable_schedule, "s")
        row = {o.due_at: o for o in occurrences(store, schedule)}[at(10 * number)]
        assert (row.status, row.reason) == ("skipped", "the schedule was disabled before it fired")
    assert toggled > 8
    clock.advance(20)
    fire_all(store)
    judged = [due for due, _ in verdicts(store, schedule)]
    assert judged == [iso(at(10 * n)) for n in range(1, len(judged) + 1)] and len(judged) >= 14
    assert_each_due_time_once(store)


@pytest.mark.rule("TIME-02", "TIME-06")
def test_a_changed_timetable_keeps_a_pending_due_time_it_shares_and_records_one_it_does_not(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    shared = make(store, "shared", interval_s=600, jitter_s=600)
    other = make(store, "other", interval_s=600, jitter_s=600)
    clock.advance(600.001)
    store.write_sync(patch_schedule, "shared", {"end_at": "2026-01-02T00:00:00Z"})
    store.write_sync(patch_schedule, "other", {"interval_s": 700})
    assert seen(store, "shared").next_run_at == at(600)
    assert verdicts(store, other) == [(iso(at(600)), "skipped")]
    assert occurrences(store, other)[0].reason == "the schedule was changed before it fired"
    clock.advance(600)
    fire_all(store)
    assert verdicts(store, shared)[0] == (iso(at(600)), "fired")
    assert_each_due_time_once(store)


@pytest.mark.rule("TIME-02", "TIME-06")
def test_due_times_of_a_downtime_are_recorded_when_the_schedule_is_disabled(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, interval_s=60)
    clock.advance(3 * 86400)
    store.write_sync(disable_schedule, "s")
    rows = occurrences(store, schedule)
    assert sum(row.count for row in rows) == 3 * 1440 and len(rows) == 1001
    assert {row.status.value for row in rows} == {"skipped"}


@pytest.mark.rule("TIME-02", "TIME-06")
@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("disable", "the schedule was disabled before it fired"),
        ("edit", "the schedule was planned anew before it fired"),
        ("pause", "paused: a visit"),
    ],
)
def test_a_planned_time_that_a_change_replaces_after_it_came_has_a_row(
    store: PersistenceAdapter, clock: ManualClock, step: str, reason: str
) -> None:
    schedule = make_adaptive(store, interval_s=30, jitter_s=30)
    clock.advance(30.001)
    if step == "disable":
        store.write_sync(disable_schedule, "s")
    elif step == "edit":
        store.write_sync(patch_schedule, "s", {"interval_s": 40})
    else:
        store.write_sync(pause_schedule, "s", None, "a visit")
    [row] = occurrences(store, schedule)
    assert (row.due_at, row.status, row.reason) == (at(30), "skipped", reason)


@pytest.mark.rule("TIME-05", "GOV-01")
def test_with_jitter_an_adaptive_interval_keeps_its_mean_and_lateness_is_counted_from_the_moment(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make_adaptive(store, interval_s=30, jitter_s=20)
    starts: list[datetime] = []
    while len(starts) < 40:
        clock.advance(0.5)
        if fire(store).fired:
            starts.append(clock.now())
            complete(store, claim_all(store)[0])
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(starts)]
    assert 28.5 <= sum(gaps) / len(gaps) <= 31.5, gaps
    assert max(row.late_s for row in occurrences(store, schedule)) <= 0.5


@pytest.mark.rule("TIME-05", "TIME-08")
def test_between_a_due_time_and_its_moment_the_schedule_shows_when_it_fires(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, interval_s=600, jitter_s=600)
    clock.advance(600.001)
    as_json_form = schedule_json(seen(store, "s"))
    assert as_json_form["next_run_at"] == iso(at(600))
    assert from_iso(as_json_form["fires_at"]) == jittered(schedule.id, at(600), 600) > clock.now()
    assert [fire.at for fire in store.read_sync(preview_schedule, "s", 2)] == [at(600), at(1200)]


@pytest.mark.rule("TIME-08", "TIME-10")
def test_while_paused_neither_next_run_nor_preview_lie_inside_the_pause(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    for name, fields in (("grid", {"interval_s": 60}), ("cron", {"cron": "*/5 * * * *"})):
        schedule = make(store, name, **fields)
        store.write_sync(pause_schedule, name, at(1000))
        first = at(1020) if name == "grid" else at(1200)
        assert schedule_json(seen(store, name))["next_run_at"] == iso(first)
        assert store.read_sync(preview_schedule, name, 1)[0].at == first
        clock.advance(300)
        fire_all(store)
        assert {status for _, status in verdicts(store, schedule)} == {"skipped"}
        assert schedule_json(seen(store, name))["next_run_at"] == iso(first)
        store.write_sync(pause_schedule, name)
        as_json_form = schedule_json(seen(store, name))
        assert (as_json_form["next_run_at"], as_json_form["fires_at"]) == (None, None)
        assert store.read_sync(preview_schedule, name, 3) == []
        store.write_sync(resume_schedule, name)
        assert from_iso(schedule_json(seen(store, name))["next_run_at"]) > clock.now()
        clock.jump(-300)
