"""How adaptive schedulers fell before, each fall as a test."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.domain.occurrence import due_work
from holdbeat.domain.schedule import Overlap, Schedule
from holdbeat.domain.schedule_edit import created, edited
from holdbeat.domain.schedule_steps import (
    after_run,
    cleared_hints,
    fired,
    paused,
    replanned,
    reset_failures,
    resumed,
    with_hint,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def probe(**fields: Any) -> Schedule:
    if "cron" not in fields:
        fields.setdefault("interval_s", 60)
    schedule = Schedule("e1", "probe", NOW, type="t", adaptive=True, overlap=Overlap.SKIP, **fields)
    return replanned(schedule, NOW).schedule


def starts_within(schedule: Schedule, seconds: int, takes_s: float = 0.5, outcome: str = "COMPLETED") -> list[float]:
    """Looks ten times a second, runs what is due, and tells when runs started."""
    starts: list[float] = []
    started: datetime | None = None
    due_at = NOW
    for tick in range(seconds * 10):
        now = after(tick / 10)
        if started is not None and now >= started + timedelta(seconds=takes_s):
            schedule = after_run(schedule, outcome, started, due_at, now).schedule
            started = None
        if started is None:
            for verdict in due_work(schedule, now).verdicts:
                if verdict.fires:
                    due_at, started = verdict.due_at, now
                    schedule = fired(schedule, due_at, now)
                    starts.append(tick / 10)
    return starts


@pytest.mark.rule("TIME-04", "GOV-09")
def test_a_short_interval_runs_once_per_interval_and_not_at_every_look() -> None:
    assert starts_within(probe(interval_s=20), 70) == [20, 40, 60]


@pytest.mark.rule("GOV-05")
def test_a_slow_run_is_not_followed_by_one_run_after_the_other() -> None:
    assert starts_within(probe(interval_s=10), 60, takes_s=15) == [10, 35]


@pytest.mark.rule("GOV-03")
def test_a_slower_hint_is_not_beaten_by_the_faster_baseline() -> None:
    slow = with_hint(probe(interval_s=10), NOW, interval_s=40).schedule
    assert starts_within(slow, 130) == [40, 80, 120]


@pytest.mark.rule("GOV-01", "TIME-04")
def test_a_cron_slot_that_was_begun_early_does_not_run_again() -> None:
    schedule = probe(cron="*/5 * * * *")
    runs = 0
    for start_s in (290, 293, 296):
        if schedule.next_run_at == after(300):
            runs += 1
            schedule = after_run(schedule, "COMPLETED", after(start_s), after(300), after(start_s + 1)).schedule
    assert runs == 1 and schedule.next_run_at == after(600)


@pytest.mark.rule("GOV-04")
def test_a_run_now_hint_runs_once_and_not_until_it_expires() -> None:
    eager = with_hint(probe(interval_s=60), NOW, next_run_at=NOW).schedule
    assert starts_within(eager, 130) == [0, 60, 120]


@pytest.mark.rule("GOV-04")
def test_a_run_now_hint_with_a_slow_failing_run_still_runs_once() -> None:
    eager = with_hint(probe(interval_s=60), NOW, next_run_at=after(1)).schedule
    assert starts_within(eager, 130, takes_s=20, outcome="FAILED") == [1, 121]


@pytest.mark.rule("GOV-04")
def test_a_one_shot_that_the_baseline_overtook_on_time_does_not_run_twice() -> None:
    hinted = with_hint(probe(interval_s=10), NOW, next_run_at=after(10)).schedule
    assert starts_within(hinted, 25) == [10, 20]


@pytest.mark.rule("GOV-04")
def test_a_one_shot_set_during_a_run_is_not_used_up_by_that_run() -> None:
    flying = fired(probe(), after(60), after(60))
    hinted = with_hint(flying, after(65), next_run_at=after(65), in_flight=True).schedule
    settled = after_run(hinted, "COMPLETED", after(60), after(60), after(70)).schedule
    assert settled.next_run_at == after(70) and settled.hint_next_run_at == after(65.001)
    again = fired(settled, after(70), after(70))
    assert again.hint_next_run_at is None
    assert after_run(again, "COMPLETED", after(70), after(70), after(71)).schedule.next_run_at == after(130)


@pytest.mark.rule("GOV-04")
def test_a_one_shot_set_in_the_millisecond_in_which_a_run_starts_is_not_used_up_by_that_run() -> None:
    flying = fired(probe(), after(60), after(60))
    hinted = with_hint(flying, after(60), next_run_at=after(60), in_flight=True).schedule
    settled = after_run(hinted, "COMPLETED", after(60), after(60), after(70)).schedule
    assert settled.next_run_at == after(70)


@pytest.mark.rule("GOV-04")
def test_a_one_shot_set_while_the_job_still_waits_is_used_up_by_that_job() -> None:
    waiting = fired(probe(), after(60), after(60))
    hinted = with_hint(waiting, after(62), next_run_at=after(63), in_flight=True).schedule
    settled = after_run(hinted, "COMPLETED", after(70), after(60), after(71)).schedule
    assert settled.hint_next_run_at is None and settled.next_run_at == after(130)


@pytest.mark.rule("GOV-04")
def test_a_one_shot_that_lies_ahead_survives_the_run_before_it() -> None:
    hinted = with_hint(probe(), NOW, next_run_at=after(90)).schedule
    settled = after_run(fired(hinted, after(60), after(60)), "COMPLETED", after(60), after(60), after(61)).schedule
    assert settled.next_run_at == after(90)


@pytest.mark.rule("GOV-04")
def test_a_worker_s_clock_behind_the_trigger_s_does_not_run_the_hint_twice() -> None:
    hinted = with_hint(probe(), NOW, next_run_at=after(10)).schedule
    settled = after_run(fired(hinted, after(10), after(10)), "COMPLETED", after(9.2), after(10), after(11)).schedule
    assert settled.hint_next_run_at is None and settled.next_run_at == after(69.2)


@pytest.mark.rule("GOV-01")
def test_the_first_failure_already_backs_off_and_the_first_success_does_no_more() -> None:
    failed = after_run(probe(), "FAILED", NOW, NOW, after(1)).schedule
    assert failed.next_run_at == after(120)
    healed = after_run(failed, "COMPLETED", after(120), after(120), after(121)).schedule
    assert healed.next_run_at == after(180)


@pytest.mark.rule("GOV-08")
def test_hints_resume_and_edits_after_a_run_move_the_next_time_at_once() -> None:
    settled = after_run(probe(interval_s=3600), "COMPLETED", NOW, NOW, after(1)).schedule
    assert settled.next_run_at == after(3600)
    assert with_hint(settled, after(10), interval_s=30).schedule.next_run_at == after(30)
    held = paused(settled, None, None, after(10)).schedule
    assert resumed(held, after(20)).schedule.next_run_at == after(3600)
    quicker = replanned(edited(settled, {"interval_s": 60}), after(10), previous=settled).schedule
    assert quicker.next_run_at == after(60)
    assert [verdict.due_at for verdict in due_work(quicker, after(60)).verdicts] == [after(60)]


@pytest.mark.rule("GOV-08")
def test_clearing_hints_resuming_and_resetting_failures_re_plan() -> None:
    ran = probe(last_run_at=NOW, failure_count=5)
    assert replanned(ran, NOW).schedule.next_run_at == after(60 * 32)
    assert reset_failures(ran, after(1)).schedule.next_run_at == after(60)
    hinted = with_hint(probe(last_run_at=NOW), NOW, interval_s=1800).schedule
    assert cleared_hints(hinted, after(1)).schedule.next_run_at == after(60)
    held = paused(probe(last_run_at=NOW), after(10_000), None, NOW).schedule
    assert resumed(held, after(1)).schedule.next_run_at == after(60)


@pytest.mark.rule("GOV-02")
def test_a_half_hour_one_shot_does_not_cut_short_a_four_hour_interval() -> None:
    slow = with_hint(probe(last_run_at=NOW), NOW, interval_s=900, ttl_s=4 * 3600).schedule
    both = with_hint(slow, NOW, next_run_at=after(5)).schedule
    settled = after_run(fired(both, after(5), after(5)), "COMPLETED", after(5), after(5), after(6)).schedule
    assert settled.next_run_at == after(905)
    later = replanned(settled, after(2 * 3600)).schedule
    assert later.hint_interval_s == 900 and later.hint_interval_expires_at == after(4 * 3600)


@pytest.mark.rule("GOV-06", "TIME-09")
def test_an_edit_is_checked_as_a_whole_and_leaves_one_timetable() -> None:
    fields = {"name": "n", "url": "http://localhost/", "interval_s": 60, "min_interval_s": 60}
    endpoint = created("e1", fields, NOW, endpoint=True)
    with pytest.raises(Invalid):
        edited(endpoint, {"max_interval_s": 30})
    switched = edited(endpoint, {"cron": "@hourly"})
    assert (switched.cron, switched.interval_s) == ("@hourly", None)


@pytest.mark.rule("GOV-07", "TIME-10")
def test_a_paused_or_disabled_schedule_does_not_run_on() -> None:
    assert starts_within(paused(probe(interval_s=10), after(35), None, NOW).schedule, 50) == [35, 45]
    assert starts_within(paused(probe(interval_s=10), None, None, NOW).schedule, 50) == []
    disabled = replanned(replace(probe(interval_s=10), enabled=False), NOW).schedule
    assert starts_within(disabled, 50) == []


@pytest.mark.rule("TIME-05")
def test_thousands_that_resume_together_are_spread_over_the_minute() -> None:
    dues = []
    for n in range(3000):
        held = replace(paused(probe(last_run_at=NOW), None, None, after(1)).schedule, id=f"endpoint-{n}")
        back = resumed(held, after(5000), spread_s=60).schedule
        assert back.next_run_at is not None
        dues.append((back.next_run_at - after(5000)).total_seconds())
    assert min(dues) >= 0 and max(dues) <= 60
    busiest = max(sum(second <= due < second + 1 for due in dues) for second in range(61))
    assert busiest < 100, "3000 over 60 s are about 50 each second"


@pytest.mark.rule("TIME-05")
def test_a_spread_resume_waits_no_longer_than_the_schedule_would_anyway() -> None:
    held = paused(probe(last_run_at=after(4990)), None, None, after(4995)).schedule
    assert resumed(held, after(5000), spread_s=10).schedule.next_run_at == after(5050)
