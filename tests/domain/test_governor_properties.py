"""What holds for every plan, whatever the inputs are."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdbeat.domain.errors import Invalid
from holdbeat.domain.governor import PlanInputs, plan
from holdbeat.domain.schedule import INDEFINITE, Overlap, Schedule, validate
from holdbeat.domain.schedule_edit import edited
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
from holdbeat.domain.timetable import fire_at

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(milliseconds: int) -> datetime:
    return NOW + timedelta(milliseconds=milliseconds)


near = st.integers(-100_000_000, 100_000_000).map(after)
past = st.integers(-100_000_000, 0).map(after)
interval = st.integers(1, 100_000).map(float)
crons = st.sampled_from(["* * * * *", "*/5 * * * *", "0 * * * *", "30 2 * * *", "0 9 * * 1-5", "0 0 1 * *"])
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    low, high = draw(st.none() | interval), draw(st.none() | interval)
    if low is not None and high is not None and low > high:
        low, high = high, low
    cron = draw(st.none() | crons)
    schedule = Schedule(
        "e1",
        "any",
        draw(past),
        type="t",
        adaptive=True,
        overlap=Overlap.SKIP,
        cron=cron,
        interval_s=draw(interval) if cron is None else None,
        timezone=draw(zones),
        min_interval_s=low,
        max_interval_s=high,
        paused_until=draw(st.none() | near | st.just(INDEFINITE)),
        start_at=draw(st.none() | near),
        end_at=draw(st.none() | near),
        failure_count=draw(st.integers(0, 50)),
        hint_interval_s=draw(st.none() | interval),
        hint_interval_expires_at=draw(near),
        hint_next_run_at=draw(st.none() | near),
        hint_next_run_expires_at=draw(near),
        last_run_at=draw(st.none() | near),
    )
    if schedule.start_at and schedule.end_at and schedule.start_at >= schedule.end_at:
        schedule.start_at = None
    return schedule


@st.composite
def inputs_of_any_plan(draw: st.DrawFn) -> PlanInputs:
    schedule = draw(schedules())
    return PlanInputs(
        schedule,
        last_start=schedule.last_run_at,
        last_due=draw(st.none() | near),
        last_finish=draw(st.none() | near),
        since=draw(st.none() | near),
        not_before=draw(st.none() | near),
    )


@pytest.mark.rule("GOV-05", "GOV-06", "GOV-07")
@given(inputs_of_any_plan())
def test_no_plan_is_in_the_past_in_a_pause_or_outside_its_limits(inputs: PlanInputs) -> None:
    schedule = inputs.schedule
    planned = plan(inputs, NOW)
    at = planned.next_run_at
    if at is None:
        assert schedule.paused_until == INDEFINITE or schedule.end_at is not None
        return
    assert at >= NOW
    assert at.microsecond % 1000 == 0
    assert schedule.paused_until is None or at >= schedule.paused_until
    assert schedule.start_at is None or at >= schedule.start_at
    assert schedule.end_at is None or at <= schedule.end_at
    start = NOW if inputs.last_start is None else min(inputs.last_start, NOW)
    if schedule.min_interval_s is not None:
        assert at >= start + timedelta(seconds=schedule.min_interval_s)
    if schedule.max_interval_s is not None:
        floors = [NOW, schedule.paused_until, schedule.start_at, inputs.not_before]
        latest = max(at for at in floors if at is not None)
        assert at <= max(latest, start + timedelta(seconds=schedule.max_interval_s))


@pytest.mark.rule("GOV-09")
@given(inputs_of_any_plan())
def test_the_same_inputs_give_the_same_decision_and_it_survives_json(inputs: PlanInputs) -> None:
    first, second = plan(inputs, NOW), plan(inputs, NOW)
    assert first == second
    assert json.loads(json.dumps(first.decision)) == first.decision
    assert first.sentence.endswith(".")
    names = [candidate["name"] for candidate in first.decision["candidates"]]
    assert first.winner is None or first.winner in names
    assert len(set(names)) == len(names)


@pytest.mark.rule("GOV-03")
@given(inputs_of_any_plan())
def test_the_winner_is_the_one_that_the_hints_leave(inputs: PlanInputs) -> None:
    planned = plan(inputs, NOW)
    assume(planned.next_run_at is not None and planned.winner is not None)
    at = {candidate["name"]: candidate["at"] for candidate in planned.decision["candidates"]}
    hints = {name: when for name, when in at.items() if name.startswith("hint_")}
    if len(hints) == 2:
        assert at[planned.winner or ""] == min(hints.values()) and planned.winner in hints
        assert planned.decision["notes"]
    elif "hint_interval" in hints:
        assert planned.winner == "hint_interval"
    else:
        assert at[planned.winner or ""] == min(at.values())


@pytest.mark.rule("GOV-02")
@given(inputs_of_any_plan())
def test_an_expired_hint_is_no_candidate_and_the_plan_is_made_again_when_one_expires(inputs: PlanInputs) -> None:
    schedule = inputs.schedule
    planned = plan(inputs, NOW)
    names = {candidate["name"] for candidate in planned.decision["candidates"]}
    assume(planned.next_run_at is not None)
    expiries = []
    for name, value, expires_at in (
        ("hint_interval", schedule.hint_interval_s, schedule.hint_interval_expires_at),
        ("hint_next_run", schedule.hint_next_run_at, schedule.hint_next_run_expires_at),
    ):
        assert expires_at is not None
        lives = value is not None and expires_at > NOW
        assert (name in names) is lives
        if lives and planned.next_run_at is not None and expires_at < planned.next_run_at:
            expiries.append(expires_at)
    assert planned.replan_at == min(expiries, default=None)


@pytest.mark.rule("GOV-01")
@given(st.integers(1, 1000), st.lists(st.sampled_from(["COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]), max_size=60))
def test_backoff_is_two_to_thirty_two_fold_and_ends_with_the_first_success(
    interval_s: int, outcomes: list[str]
) -> None:
    schedule = Schedule("e1", "x", NOW, type="t", interval_s=interval_s, adaptive=True, overlap=Overlap.SKIP)
    failures = 0
    for outcome in outcomes:
        failures = 0 if outcome == "COMPLETED" else failures + (outcome == "FAILED")
        schedule = after_run(schedule, outcome, NOW, NOW, NOW).schedule
        assert schedule.failure_count == failures
        assert schedule.next_run_at == NOW + timedelta(seconds=interval_s * 2 ** min(failures, 5))


@pytest.mark.rule("TIME-05", "GOV-06")
@given(schedules(), st.integers(1, 3600))
def test_jitter_never_fires_early_nor_beyond_the_limits(schedule: Schedule, jitter_s: int) -> None:
    schedule.jitter_s = float(jitter_s)
    planned = replanned(schedule, NOW).schedule
    at = fire_at(planned)
    if planned.next_run_at is None or at is None:
        assert at is None and planned.next_run_at is None
        return
    assert planned.next_run_at <= at <= planned.next_run_at + timedelta(seconds=jitter_s)
    assert planned.end_at is None or at <= planned.end_at


class LifeOfAnEndpoint(RuleBasedStateMachine):
    """Any order of hints, pauses, edits, runs and waiting: the limits hold and each one-shot runs once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.started: datetime | None = None
        self.due_at = NOW
        self.one_shots_set = 0
        self.one_shots_run = 0
        self.schedule = Schedule("e1", "x", NOW, type="t", interval_s=60, adaptive=True, overlap=Overlap.SKIP)

    @initialize(changes=st.sampled_from([{}, {"cron": "*/5 * * * *"}, {"interval_s": 10, "min_interval_s": 20}]))
    def begin(self, changes: dict[str, Any]) -> None:
        self.schedule = replanned(edited(self.schedule, changes), self.now).schedule

    @property
    def in_flight(self) -> bool:
        return self.started is not None

    @rule(ms=st.integers(1, 400_000))
    def wait(self, ms: int) -> None:
        self.now += timedelta(milliseconds=ms)
        expiry = self.schedule.hint_next_run_expires_at
        if expiry is not None and expiry <= self.now and not self.in_flight:
            self.schedule = replanned(self.schedule, self.now).schedule

    @rule(interval_s=st.none() | st.integers(1, 2000), in_ms=st.none() | st.integers(0, 900_000))
    def hint(self, interval_s: int | None, in_ms: int | None) -> None:
        at = None if in_ms is None else self.now + timedelta(milliseconds=in_ms)
        if interval_s is None and at is None:
            return
        step = with_hint(self.schedule, self.now, interval_s=interval_s, next_run_at=at, in_flight=self.in_flight)
        self.schedule = step.schedule
        self.one_shots_set += at is not None

    @rule()
    def clear(self) -> None:
        self.schedule = cleared_hints(self.schedule, self.now, in_flight=self.in_flight).schedule

    @rule(ms=st.none() | st.integers(1, 2_000_000))
    def pause(self, ms: int | None) -> None:
        until = None if ms is None else self.now + timedelta(milliseconds=ms)
        self.schedule = paused(self.schedule, until, None, self.now, in_flight=self.in_flight).schedule

    @rule(spread_s=st.sampled_from([0.0, 60.0]))
    def resume(self, spread_s: float) -> None:
        self.schedule = resumed(self.schedule, self.now, spread_s=spread_s, in_flight=self.in_flight).schedule

    @rule()
    def reset(self) -> None:
        self.schedule = reset_failures(self.schedule, self.now, in_flight=self.in_flight).schedule

    @rule(
        changes=st.fixed_dictionaries(
            {},
            optional={
                "min_interval_s": st.none() | interval,
                "max_interval_s": st.none() | interval,
                "interval_s": interval,
                "enabled": st.booleans(),
            },
        )
    )
    def edit(self, changes: dict[str, Any]) -> None:
        try:
            result = edited(self.schedule, changes)
        except Invalid:
            return
        self.schedule = replanned(result, self.now, previous=self.schedule, in_flight=self.in_flight).schedule

    @precondition(lambda self: self.schedule.next_run_at is not None)
    @rule(late_ms=st.integers(0, 5000))
    def fire(self, late_ms: int) -> None:
        due = self.schedule.next_run_at
        assert due is not None
        self.now = max(self.now, due) + timedelta(milliseconds=late_ms)
        self.one_shots_run += (self.schedule.last_decision or {})["winner"] == "hint_next_run"
        self.schedule = fired(self.schedule, due, self.now)
        self.started, self.due_at = self.now, due

    @precondition(lambda self: self.started is not None)
    @rule(outcome=st.sampled_from(list(ChainEnd)), took_ms=st.integers(0, 200_000))
    def end(self, outcome: ChainEnd, took_ms: int) -> None:
        self.now += timedelta(milliseconds=took_ms)
        started, self.started = self.started, None
        self.schedule = after_run(self.schedule, outcome, started, self.due_at, self.now).schedule

    @invariant()
    def the_schedule_is_valid(self) -> None:
        validate(self.schedule)

    @invariant()
    def nothing_is_planned_in_flight_disabled_or_inside_a_pause(self) -> None:
        at = self.schedule.next_run_at
        if self.in_flight or not self.schedule.enabled or self.schedule.paused_until == INDEFINITE:
            assert at is None
        else:
            assert at is not None, "an enabled schedule that is idle always has a next time"
            assert not self.schedule.is_paused(at)

    @invariant()
    def a_one_shot_that_ran_is_gone(self) -> None:
        assert self.one_shots_run <= self.one_shots_set
        if self.schedule.hint_next_run_at is not None and self.schedule.last_run_at is not None:
            begun = self.started or self.schedule.last_run_at
            assert self.schedule.hint_next_run_at > begun


TestLifeOfAnEndpoint = pytest.mark.rule("GOV-04", "GOV-07", "GOV-08", "GOV-09")(LifeOfAnEndpoint.TestCase)
