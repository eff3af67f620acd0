"""The governor's rules, one by one: baseline, hints, past candidates, clamps, pause, re-planning."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdbeat.domain.errors import Invalid
from holdbeat.domain.governor import Plan, PlanInputs, plan
from holdbeat.domain.schedule import INDEFINITE, Overlap, Schedule
from holdbeat.domain.schedule_steps import (
    ChainEnd,
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
    return Schedule("e1", "probe", NOW, type="t", adaptive=True, overlap=Overlap.SKIP, **fields)


def ended(
    schedule: Schedule, at_s: float, outcome: str = "COMPLETED", start_s: float = 0, due_s: float = 0
) -> Schedule:
    return after_run(schedule, outcome, after(start_s), after(due_s), after(at_s)).schedule


def decided(schedule: Schedule, at_s: float, **inputs: Any) -> Plan:
    return plan(replace(PlanInputs.of(schedule), **inputs), after(at_s))


@pytest.mark.rule("GOV-01")
def test_an_interval_counts_from_the_start_of_the_run() -> None:
    assert ended(probe(), 5).next_run_at == after(60)


@pytest.mark.rule("GOV-01")
def test_cron_takes_the_slot_strictly_after_start_and_intended_slot() -> None:
    five = probe(cron="*/5 * * * *")
    assert ended(five, 3).next_run_at == after(300)
    early = ended(five, 298, start_s=295, due_s=300)
    assert early.next_run_at == after(600), "a run that began before its slot must not meet it again"


@pytest.mark.rule("GOV-01")
def test_each_failure_doubles_the_interval_up_to_thirty_two_and_one_success_ends_it() -> None:
    schedule = probe()
    gaps = []
    for _ in range(8):
        schedule = ended(schedule, 1, "FAILED")
        assert schedule.next_run_at is not None
        gaps.append((schedule.next_run_at - NOW).total_seconds() / 60)
    assert gaps == [2, 4, 8, 16, 32, 32, 32, 32]
    healed = ended(schedule, 1, "COMPLETED")
    assert healed.failure_count == 0 and healed.next_run_at == after(60)


@pytest.mark.rule("GOV-01")
def test_backoff_leaves_cron_slots_and_hinted_intervals_alone() -> None:
    assert ended(probe(cron="*/5 * * * *", failure_count=5), 1, "FAILED").next_run_at == after(300)
    hinted = with_hint(probe(failure_count=5, last_run_at=NOW), NOW, interval_s=30).schedule
    assert ended(hinted, 1, "FAILED").next_run_at == after(30)


@pytest.mark.parametrize("outcome", ["SKIPPED", "CANCELLED", "interrupted"])
@pytest.mark.rule("GOV-01")
def test_skipped_cancelled_and_interrupted_leave_the_failure_count(outcome: str) -> None:
    assert ended(probe(failure_count=2), 1, outcome).failure_count == 2


def test_an_unknown_outcome_is_a_bug_and_not_a_plan() -> None:
    with pytest.raises(ValueError, match="EXPLODED"):
        after_run(probe(), "EXPLODED", NOW, NOW, NOW)


@pytest.mark.rule("GOV-02")
def test_hints_expire_by_default_an_hour_from_now_and_half_an_hour_after_their_time() -> None:
    hinted = with_hint(probe(), NOW, interval_s=10, next_run_at=after(7200), reason="traffic").schedule
    assert hinted.hint_interval_expires_at == after(3600)
    assert hinted.hint_next_run_expires_at == after(7200 + 1800)
    assert hinted.hint_interval_reason == hinted.hint_next_run_reason == "traffic"


@pytest.mark.rule("GOV-02")
def test_a_ttl_overrides_both_expiries_and_one_hint_leaves_the_other_alone() -> None:
    slow = with_hint(probe(), NOW, interval_s=600, ttl_s=4 * 3600, reason="night").schedule
    both = with_hint(slow, NOW, next_run_at=after(5), ttl_s=60, reason="look").schedule
    assert both.hint_interval_expires_at == after(4 * 3600) and both.hint_interval_reason == "night"
    assert both.hint_next_run_expires_at == after(60) and both.hint_next_run_reason == "look"


@pytest.mark.parametrize(
    ("hint", "field"),
    [
        ({}, "interval_s"),
        ({"interval_s": 0}, "interval_s"),
        ({"interval_s": -5}, "interval_s"),
        ({"interval_s": 0.2}, "interval_s"),
        ({"interval_s": float("nan")}, "interval_s"),
        ({"interval_s": float("inf")}, "interval_s"),
        ({"interval_s": 1e300}, "interval_s"),
        ({"interval_s": True}, "interval_s"),
        ({"interval_s": 10, "ttl_s": 0}, "ttl_s"),
        ({"interval_s": 10, "ttl_s": -1}, "ttl_s"),
        ({"interval_s": 10, "ttl_s": float("nan")}, "ttl_s"),
        ({"interval_s": 10, "ttl_s": 1e300}, "ttl_s"),
        ({"next_run_at": after(60), "ttl_s": 59}, "ttl_s"),
        ({"next_run_at": after(-1800)}, "next_run_at"),
        ({"next_run_at": after(2 * 31_536_000)}, "next_run_at"),
        ({"next_run_at": INDEFINITE}, "next_run_at"),
        ({"next_run_at": "soon"}, "next_run_at"),
        ({"interval_s": 10, "reason": "x" * 501}, "reason"),
        ({"interval_s": 10, "reason": "a\nb"}, "reason"),
    ],
)
@pytest.mark.rule("GOV-02")
def test_a_hint_that_makes_no_sense_is_refused(hint: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        with_hint(probe(), NOW, **hint)
    assert caught.value.field == field


@pytest.mark.rule("TIME-09")
def test_a_plain_schedule_takes_no_hints_and_has_no_failures_to_reset() -> None:
    plain = Schedule("s1", "plain", NOW, type="t", interval_s=60)
    with pytest.raises(Invalid) as caught:
        with_hint(plain, NOW, interval_s=5)
    assert caught.value.code == "not_adaptive"
    with pytest.raises(Invalid):
        cleared_hints(plain, NOW)
    with pytest.raises(Invalid):
        reset_failures(plain, NOW)


@pytest.mark.rule("GOV-02")
def test_a_one_shot_time_that_has_just_passed_means_now() -> None:
    hinted = with_hint(probe(), NOW, next_run_at=after(-2)).schedule
    assert hinted.hint_next_run_at == NOW and hinted.next_run_at == NOW


@pytest.mark.rule("GOV-02")
def test_an_expired_hint_is_dropped_and_no_longer_counts() -> None:
    hinted = with_hint(probe(last_run_at=NOW), NOW, interval_s=600, ttl_s=10)
    assert hinted.schedule.next_run_at == after(600)
    assert hinted.plan is not None and hinted.plan.replan_at == after(10)
    later = replanned(hinted.schedule, after(10)).schedule
    assert later.hint_interval_s is None and later.hint_interval_expires_at is None
    assert later.next_run_at == after(60)


@pytest.mark.rule("GOV-02")
def test_the_second_look_at_an_odd_expiry_finds_the_hint_dead() -> None:
    hinted = with_hint(probe(last_run_at=NOW), NOW, interval_s=600, ttl_s=10.00042)
    assert hinted.plan is not None and hinted.plan.replan_at is not None
    assert replanned(hinted.schedule, hinted.plan.replan_at).schedule.hint_interval_s is None
    assert hinted.plan.decision["replan_at"] == "2026-03-01T12:00:10.001Z"


@pytest.mark.rule("GOV-02")
def test_a_plan_that_comes_before_the_expiry_needs_no_second_look() -> None:
    hinted = with_hint(probe(last_run_at=NOW), NOW, interval_s=30)
    assert hinted.plan is not None and hinted.plan.replan_at is None


@pytest.mark.rule("GOV-03")
def test_both_hints_ignore_the_baseline_and_the_earlier_wins() -> None:
    both = with_hint(probe(last_run_at=NOW), NOW, interval_s=600, next_run_at=after(300))
    assert both.schedule.next_run_at == after(300), "the baseline at 60 s is ignored"
    assert both.plan is not None and both.plan.winner == "hint_next_run"
    assert any("Both hints" in note for note in both.plan.decision["notes"])
    other = with_hint(probe(last_run_at=NOW), NOW, interval_s=200, next_run_at=after(300))
    assert other.schedule.next_run_at == after(200)


@pytest.mark.rule("GOV-03")
def test_an_interval_hint_replaces_the_baseline_slower_or_faster() -> None:
    for hinted_s in (10, 3000):
        hinted = with_hint(probe(last_run_at=NOW), NOW, interval_s=hinted_s).schedule
        assert hinted.next_run_at == after(hinted_s)
    slower = with_hint(probe(cron="* * * * *", last_run_at=NOW), NOW, interval_s=900).schedule
    assert slower.next_run_at == after(900)


@pytest.mark.rule("GOV-03")
def test_a_one_shot_alone_competes_with_the_baseline() -> None:
    sooner = with_hint(probe(last_run_at=NOW), NOW, next_run_at=after(20)).schedule
    later = with_hint(probe(last_run_at=NOW), NOW, next_run_at=after(500)).schedule
    assert (sooner.next_run_at, later.next_run_at) == (after(20), after(60))


@pytest.mark.rule("GOV-05")
def test_a_run_longer_than_its_interval_counts_from_its_end() -> None:
    slow = ended(probe(), 90)
    assert slow.next_run_at == after(150)
    assert replanned(slow, after(100)).schedule.next_run_at == after(150), "and so it stays when re-planned"


@pytest.mark.rule("GOV-05")
def test_a_missed_cron_slot_runs_once_now_and_then_returns_to_the_grid() -> None:
    five = ended(probe(cron="*/5 * * * *"), 605)
    assert five.next_run_at == after(605)
    assert ended(five, 610, start_s=606, due_s=605).next_run_at == after(900)


@pytest.mark.rule("GOV-06")
def test_min_and_max_are_measured_from_the_last_start() -> None:
    assert ended(probe(min_interval_s=90), 50).next_run_at == after(90)
    assert ended(probe(interval_s=600, max_interval_s=120), 50).next_run_at == after(120)
    assert ended(probe(max_interval_s=100), 1, "FAILED").next_run_at == after(100), "backoff is clamped too"
    eager = with_hint(probe(min_interval_s=30, last_run_at=NOW), after(5), next_run_at=after(6)).schedule
    assert eager.next_run_at == after(30), "a hint does not break the limit"


@pytest.mark.rule("GOV-06")
def test_clamps_of_a_schedule_that_never_ran_are_measured_from_now() -> None:
    assert decided(probe(interval_s=10, min_interval_s=60), 5).next_run_at == after(65)
    assert decided(probe(interval_s=1000, max_interval_s=60), 5).next_run_at == after(65)


@pytest.mark.rule("GOV-06")
def test_a_max_clamp_that_has_passed_means_now() -> None:
    overdue = decided(probe(interval_s=1000, max_interval_s=60), 500, last_start=NOW)
    assert overdue.next_run_at == after(500)


@pytest.mark.rule("GOV-07", "TIME-10")
def test_a_pause_overrides_hints_and_clamps() -> None:
    hinted = with_hint(probe(max_interval_s=60, last_run_at=NOW), NOW, next_run_at=after(5)).schedule
    assert paused(hinted, after(9000), None, NOW).schedule.next_run_at == after(9000)


@pytest.mark.rule("GOV-07")
def test_a_pause_set_during_the_run_holds() -> None:
    held = paused(probe(), after(1000), "deploy", after(1), in_flight=True)
    assert held.schedule.next_run_at is None
    assert ended(held.schedule, 5).next_run_at == after(1000)


@pytest.mark.rule("GOV-07")
def test_a_pause_without_end_plans_nothing_until_it_is_resumed() -> None:
    held = paused(probe(last_run_at=NOW), None, "holiday", after(1)).schedule
    assert held.next_run_at is None and "holiday" in (held.last_decision or {})["sentence"]
    assert resumed(held, after(500)).schedule.next_run_at == after(500)


@pytest.mark.rule("GOV-07")
def test_a_pause_that_ends_in_the_past_is_refused() -> None:
    with pytest.raises(Invalid):
        paused(probe(), NOW, None, NOW)


@pytest.mark.rule("TIME-10")
def test_cron_resumes_at_its_first_slot_not_before_the_end_of_the_pause() -> None:
    hourly = probe(cron="0 * * * *", last_run_at=NOW)
    assert paused(hourly, after(5400), None, after(60)).schedule.next_run_at == after(7200)
    assert paused(hourly, after(7200), None, after(60)).schedule.next_run_at == after(7200)
    held = paused(hourly, None, None, after(60)).schedule
    back = resumed(held, after(5400)).schedule
    assert back.next_run_at == after(7200), "the slot at one hour fell into the pause"
    assert replanned(back, after(5500)).schedule.next_run_at == after(7200), "also when planned again"
    over = paused(hourly, after(5400), None, after(60)).schedule
    assert replanned(over, after(6000)).schedule.next_run_at == after(7200), "a pause over by itself, likewise"


@pytest.mark.rule("TIME-10")
def test_an_interval_resumes_at_its_own_time_or_at_the_end_of_the_pause() -> None:
    assert paused(probe(last_run_at=NOW), after(30), None, NOW).schedule.next_run_at == after(60)
    assert paused(probe(last_run_at=NOW), after(90), None, NOW).schedule.next_run_at == after(90)


@pytest.mark.rule("GOV-08")
def test_disabling_edits_and_enabling_re_plan_at_once() -> None:
    hourly = replanned(probe(cron="0 * * * *", last_run_at=NOW), NOW).schedule
    daily = replace(hourly, cron="30 * * * *")
    assert replanned(daily, after(60), previous=hourly).schedule.next_run_at == after(1800)
    off = replanned(replace(hourly, enabled=False), after(60), previous=hourly).schedule
    assert off.next_run_at is None
    on = replanned(replace(off, enabled=True), after(5400), previous=off).schedule
    assert on.next_run_at == after(7200), "slots of the time when it was disabled are not made up for"


@pytest.mark.rule("GOV-08")
def test_a_cron_edited_past_its_new_slot_does_not_run_at_once() -> None:
    three = replanned(probe(cron="0 3 * * *", last_run_at=NOW - timedelta(hours=9)), NOW).schedule
    four = replanned(replace(three, cron="0 4 * * *"), after(3600), previous=three).schedule
    assert four.next_run_at == datetime(2026, 3, 2, 4, tzinfo=UTC)


@pytest.mark.rule("GOV-08")
def test_what_an_edit_or_a_resume_during_the_run_cut_off_is_not_made_up_for_at_its_end() -> None:
    three = fired(probe(cron="0 12 * * *"), NOW, NOW)
    four = replanned(replace(three, cron="0 13 * * *"), after(9000), previous=three, in_flight=True).schedule
    assert ended(four, 10_000).next_run_at == after(25 * 3600)
    held = paused(fired(probe(cron="0 * * * *"), NOW, NOW), None, None, after(5), in_flight=True).schedule
    back = resumed(held, after(4000), in_flight=True).schedule
    assert ended(back, 5000).next_run_at == after(7200)


@pytest.mark.rule("GOV-09")
def test_nothing_is_planned_while_a_job_is_unfinished() -> None:
    flying = fired(replanned(probe(), NOW).schedule, after(60), after(60))
    assert flying.next_run_at is None
    for step in (
        with_hint(flying, after(61), interval_s=5, in_flight=True),
        cleared_hints(flying, after(61), in_flight=True),
        reset_failures(flying, after(61), in_flight=True),
        resumed(flying, after(61), in_flight=True),
        replanned(flying, after(61), in_flight=True),
    ):
        assert step.schedule.next_run_at is None


@pytest.mark.rule("GOV-09")
def test_recovery_plans_what_has_neither_a_job_nor_a_time() -> None:
    lost = fired(ended(probe(), 5), after(60), after(60))
    assert replanned(lost, after(500)).schedule.next_run_at == after(500)


@pytest.mark.rule("GOV-09")
def test_a_job_cancelled_before_it_ran_is_not_planned_again_at_once() -> None:
    schedule = replanned(probe(), NOW).schedule
    waited = after_run(fired(schedule, after(60), after(60)), ChainEnd.CANCELLED, None, after(60), after(300)).schedule
    assert waited.last_run_at is None and waited.next_run_at == after(360)
    five = after_run(probe(cron="*/5 * * * *"), ChainEnd.CANCELLED, None, after(300), after(301)).schedule
    assert five.next_run_at == after(600)


@pytest.mark.rule("GOV-01")
def test_the_first_run_is_one_interval_after_the_creation_or_at_the_start() -> None:
    assert decided(probe(), 0).next_run_at == after(60)
    assert decided(probe(start_at=after(500)), 0).next_run_at == after(500)
    assert decided(probe(cron="0 * * * *", start_at=after(3600)), 0).next_run_at == after(3600)
    assert decided(probe(cron="0 * * * *"), 0).next_run_at == after(3600)


def test_nothing_runs_before_the_start_nor_after_the_end() -> None:
    hinted = with_hint(probe(start_at=after(500)), NOW, next_run_at=after(5)).schedule
    assert hinted.next_run_at == after(500)
    over = ended(probe(end_at=after(50)), 5)
    assert over.next_run_at is None and "over" in (over.last_decision or {})["sentence"]


@pytest.mark.rule("LEASE-06")
def test_a_clock_that_went_back_does_not_stall_an_adaptive_schedule() -> None:
    ran_tomorrow = probe(last_run_at=after(86400))
    back = replanned(ran_tomorrow, NOW).schedule
    assert back.next_run_at == after(60)


def test_every_decision_is_json_and_tells_a_person_why() -> None:
    hinted = with_hint(
        probe(max_interval_s=45, last_run_at=NOW), NOW, interval_s=600, ttl_s=30, reason="quiet"
    ).schedule
    decision = json.loads(json.dumps(hinted.last_decision))
    assert decision["winner"] == "hint_interval"
    assert [candidate["name"] for candidate in decision["candidates"]] == ["interval", "hint_interval"]
    assert decision["clamps"] == [
        {"name": "max_interval_s", "from": "2026-03-01T12:10:00.000Z", "to": "2026-03-01T12:00:45.000Z"}
    ]
    assert decision["replan_at"] == "2026-03-01T12:00:30.000Z"
    assert decision["sentence"] == (
        "Next run at 2026-03-01T12:00:45.000Z by the hinted interval: 600 s after the last start (quiet); "
        "moved earlier by max_interval_s."
    )


def test_a_plain_schedule_only_remembers_its_last_start() -> None:
    plain = Schedule("s1", "plain", NOW, type="t", interval_s=60, next_run_at=after(60))
    assert fired(plain, after(60), after(60)) == plain
    step = after_run(plain, "FAILED", after(61), after(60), after(65))
    assert step.plan is None and step.schedule == replace(plain, last_run_at=after(61))
