"""Every due time gets one verdict: late ones by the catch-up policy, paused ones skipped, overlaps decided."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.occurrence import (
    OccurrenceStatus,
    OverlapAction,
    Verdict,
    catch_up,
    due_work,
    overlap,
)
from holdbeat.domain.schedule import INDEFINITE, CatchUp, Overlap, Schedule
from holdbeat.domain.schedule_steps import paused, replanned, resumed
from holdbeat.domain.timetable import next_due

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIRED, SKIPPED = OccurrenceStatus.FIRED, OccurrenceStatus.SKIPPED
MISSED, COALESCED = OccurrenceStatus.MISSED, OccurrenceStatus.COALESCED


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def schedule(**fields: Any) -> Schedule:
    if "cron" not in fields and "interval_s" not in fields:
        fields["cron"] = "* * * * *"
    return replanned(Schedule("s1", "s", NOW, type="t", **fields), NOW).schedule


def tally(verdicts: list[Verdict]) -> dict[OccurrenceStatus, int]:
    counts: Counter[OccurrenceStatus] = Counter()
    for verdict in verdicts:
        counts[verdict.status] += verdict.count
    return dict(counts)


@pytest.mark.parametrize("policy", list(CatchUp))
@pytest.mark.parametrize("late_s", [0, 0.02, 59.9, 60])
@pytest.mark.rule("TIME-03")
def test_up_to_a_minute_late_simply_fires(policy: CatchUp, late_s: float) -> None:
    work = due_work(schedule(cron="0 * * * *", catch_up=policy), after(3600 + late_s))
    assert [(verdict.due_at, verdict.status) for verdict in work.verdicts] == [(after(3600), FIRED)]
    assert work.verdicts[0].late_s == pytest.approx(late_s)
    assert work.next_run_at == after(7200)


@pytest.mark.parametrize("policy", list(CatchUp))
@pytest.mark.rule("TIME-03")
def test_several_due_times_within_the_grace_all_fire_up_to_the_limit(policy: CatchUp) -> None:
    fields: dict[str, Any] = {"interval_s": 10, "catch_up": policy, "misfire_grace_s": 30.0}
    work = due_work(schedule(**fields), after(45))
    within = [verdict.due_at for verdict in work.verdicts if verdict.fires and verdict.late_s <= 30]
    assert within == [after(n) for n in (20, 30, 40)]
    work = due_work(schedule(**fields, catch_up_limit=2), after(45))
    assert [verdict.due_at for verdict in work.verdicts if verdict.fires] == [after(30), after(40)]


@pytest.mark.parametrize(("policy", "fires"), [(CatchUp.LATEST, 1), (CatchUp.NONE, 1)])
@pytest.mark.rule("TIME-03")
def test_after_a_short_stop_a_schedule_of_one_second_makes_no_stale_jobs(policy: CatchUp, fires: int) -> None:
    work = due_work(schedule(interval_s=1, catch_up=policy), after(45.5))
    assert sum(verdict.fires for verdict in work.verdicts) == fires
    assert sum(verdict.count for verdict in work.verdicts) == 45


@pytest.mark.parametrize(
    ("fields", "grace_s"),
    [
        ({"interval_s": 1}, 1),
        ({"interval_s": 59.5}, 59.5),
        ({"interval_s": 3600}, 60),
        ({"cron": "* * * * *"}, 60),
        ({"interval_s": 1, "misfire_grace_s": 20}, 20),
        ({"cron": "* * * * *", "misfire_grace_s": 0}, 0),
    ],
)
@pytest.mark.rule("TIME-03")
def test_the_grace_is_a_minute_or_the_interval_unless_it_is_set(fields: dict[str, Any], grace_s: float) -> None:
    assert schedule(**fields).grace_s == grace_s


@pytest.mark.rule("TIME-03")
def test_latest_fires_the_newest_due_time_for_all_that_was_missed() -> None:
    work = due_work(schedule(cron="0 * * * *"), after(5 * 3600 + 61))
    assert [(verdict.due_at, verdict.status) for verdict in work.verdicts] == [
        *((after(hour * 3600), COALESCED) for hour in (1, 2, 3, 4)),
        (after(5 * 3600), FIRED),
    ]


@pytest.mark.rule("TIME-03")
def test_latest_fires_once_when_the_newest_is_on_time() -> None:
    work = due_work(schedule(), after(3 * 86400 + 30))
    assert [verdict.due_at for verdict in work.verdicts if verdict.fires] == [after(3 * 86400)]


@pytest.mark.rule("TIME-03")
def test_none_fires_nothing_that_is_late() -> None:
    work = due_work(schedule(cron="0 * * * *", catch_up=CatchUp.NONE), after(5 * 3600 + 61))
    assert tally(work.verdicts) == {MISSED: 5}
    assert work.next_run_at == after(6 * 3600)


@pytest.mark.rule("TIME-03")
def test_all_fires_the_newest_up_to_the_limit_in_due_order() -> None:
    work = due_work(schedule(cron="0 * * * *", catch_up=CatchUp.ALL, catch_up_limit=3), after(5 * 3600 + 61))
    assert [(verdict.due_at, verdict.status) for verdict in work.verdicts] == [
        (after(1 * 3600), MISSED),
        (after(2 * 3600), MISSED),
        (after(3 * 3600), FIRED),
        (after(4 * 3600), FIRED),
        (after(5 * 3600), FIRED),
    ]


@pytest.mark.rule("TIME-03")
def test_three_days_of_minutes_give_a_thousand_rows_and_one_summary() -> None:
    work = due_work(schedule(), after(3 * 86400 + 30))
    assert len(work.verdicts) == 1002
    summary, fired = work.verdicts[0], work.verdicts[-1]
    assert (summary.due_at, summary.status, summary.count) == (after(60), COALESCED, 3319)
    assert "3319 due times" in (summary.reason or "")
    assert fired.fires and tally(work.verdicts) == {COALESCED: 4319, FIRED: 1}
    assert [verdict.due_at for verdict in work.verdicts] == sorted({verdict.due_at for verdict in work.verdicts})


@pytest.mark.rule("TIME-03")
def test_the_largest_limit_still_records_the_rest() -> None:
    late = due_work(schedule(catch_up=CatchUp.ALL, catch_up_limit=10_000), after(10 * 86400 + 30))
    assert tally(late.verdicts) == {FIRED: 10_000, MISSED: 4400}
    assert len(late.verdicts) == 11_001


@pytest.mark.rule("TIME-03")
@given(
    st.sampled_from(list(CatchUp)),
    st.integers(1, 2000),
    st.integers(1, 200_000),
    st.integers(1, 300),
    st.none() | st.integers(1, 250_000),
)
def test_the_verdicts_add_up_to_all_due_times_and_stay_few(
    policy: CatchUp, step_s: int, length_s: int, limit: int, paused_s: int | None
) -> None:
    grid = schedule(interval_s=step_s, catch_up=policy, catch_up_limit=limit)
    grid.paused_until = after(paused_s) if paused_s is not None else None
    now = after(length_s)
    work = due_work(grid, now)
    counts = tally(work.verdicts)
    assert not [verdict for verdict in work.verdicts if " 1 due times" in f" {verdict.reason}"]
    within = min(length_s, (paused_s or 0) - 1) // step_s if paused_s else 0
    assert sum(counts.values()) == length_s // step_s
    assert counts.get(SKIPPED, 0) == within
    assert sum(not verdict.fires for verdict in work.verdicts) <= 2002
    assert counts.get(FIRED, 0) <= max(limit if policy is CatchUp.ALL else 1, 60 // step_s + 1)
    dues = [verdict.due_at for verdict in work.verdicts]
    assert dues == sorted(set(dues))
    assert work.next_run_at == next_due(grid, now)


@pytest.mark.rule("TIME-03")
def test_a_clock_that_went_back_finds_nothing_due_and_moves_nothing() -> None:
    ahead = schedule()
    work = due_work(ahead, NOW - timedelta(days=1))
    assert work.verdicts == [] and work.next_run_at == ahead.next_run_at


@pytest.mark.rule("TIME-03")
def test_an_adaptive_schedule_fires_its_planned_time_however_late() -> None:
    probe = schedule(interval_s=60, adaptive=True, overlap=Overlap.SKIP)
    work = due_work(probe, after(86400))
    assert [(verdict.due_at, verdict.status) for verdict in work.verdicts] == [(after(60), FIRED)]
    assert work.next_run_at is None, "it is in flight now, and planned when it ends"


@pytest.mark.rule("TIME-10")
def test_a_disabled_schedule_leaves_no_rows() -> None:
    disabled = schedule()
    disabled.enabled = False
    assert due_work(disabled, after(3600)).verdicts == []
    assert catch_up(disabled, [after(60)], after(60)) == []


@pytest.mark.rule("TIME-10")
def test_due_times_within_a_pause_are_skipped_and_never_caught_up() -> None:
    held = paused(schedule(catch_up=CatchUp.ALL), after(300), "deploy", NOW).schedule
    work = due_work(held, after(600 + 30))
    assert [(verdict.due_at, verdict.status) for verdict in work.verdicts] == [
        *((after(60 * n), SKIPPED) for n in (1, 2, 3, 4)),
        *((after(60 * n), FIRED) for n in (5, 6, 7, 8, 9, 10)),
    ]
    assert "deploy" in (work.verdicts[0].reason or "")


@pytest.mark.rule("TIME-10")
def test_a_slot_exactly_at_the_end_of_a_pause_fires() -> None:
    held = paused(schedule(cron="0 * * * *"), after(3600), None, NOW).schedule
    assert [verdict.status for verdict in due_work(held, after(3600)).verdicts] == [FIRED]


@pytest.mark.rule("TIME-10")
def test_a_pause_without_end_skips_on_until_somebody_resumes() -> None:
    held = paused(schedule(), None, None, NOW).schedule
    assert held.paused_until == INDEFINITE
    work = due_work(held, after(120))
    assert [verdict.status for verdict in work.verdicts] == [SKIPPED, SKIPPED]
    held.next_run_at = work.next_run_at
    back = resumed(held, after(200))
    assert [(verdict.due_at, verdict.status) for verdict in back.verdicts] == [(after(180), SKIPPED)]
    assert back.schedule.next_run_at == after(240) and back.schedule.paused_until is None
    assert [verdict.due_at for verdict in due_work(back.schedule, after(240)).verdicts] == [after(240)]


@pytest.mark.rule("TIME-10")
def test_resuming_after_the_pause_was_over_keeps_what_became_due_since() -> None:
    held = paused(schedule(), after(90), None, NOW).schedule
    back = resumed(held, after(130))
    assert [verdict.due_at for verdict in back.verdicts] == [after(60)]
    assert back.schedule.next_run_at == after(120)


@pytest.mark.rule("TIME-10")
def test_resuming_what_is_not_paused_changes_nothing() -> None:
    free = schedule()
    assert resumed(free, after(5)).schedule == free


@pytest.mark.parametrize(
    ("policy", "running", "queued", "action"),
    [
        (policy, running, queued, action)
        for policy, actions in {
            Overlap.ALLOW: ("fire", "fire", "fire", "fire"),
            Overlap.SKIP: ("fire", "skip", "skip", "skip"),
            Overlap.QUEUE_ONE: ("fire", "skip", "fire_gated", "skip"),
            Overlap.CANCEL_PREVIOUS: ("fire", "cancel_previous", "cancel_previous", "cancel_previous"),
        }.items()
        for (running, queued), action in zip(
            ((False, False), (False, True), (True, False), (True, True)), actions, strict=True
        )
    ],
)
@pytest.mark.rule("TIME-11")
def test_overlap_is_decided_for_every_pair(policy: Overlap, running: bool, queued: bool, action: str) -> None:
    decision = overlap(policy, running, queued)
    assert decision.action is OverlapAction(action)
    assert decision.fires is (action != "skip")
    assert bool(decision.reason) is (action != "fire")
