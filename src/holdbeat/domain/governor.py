"""Governor: when an adaptive Schedule runs next, and why.

Guards the hard limits: never in the past, never closer to the last start than the min clamp nor (the past and a pause
aside) further than the max clamp, never inside a pause, never outside start_at and end_at. One pure function decides;
the same inputs give the same plan.

The order of the steps:
  1. Candidates. Baseline: the cron slot after the last start and the last intended slot, or last start +
     interval × 2^min(failures, 5). Hints while they live: an interval from the last start, a one-shot time.
  2. Candidates in the past. When the last run took longer than the interval, that counts from its finish
     instead; whatever is past even then, and a cron slot that has passed, becomes one run now.
  3. Winner. Both hints: the earlier. The interval hint alone: itself. The one-shot alone or no hint: the
     earliest.
  4. Not before the Retry-After of the last answer; then min clamp, then max clamp, from the last start.
  5. Never before now, start_at, or the end of a pause; after end_at never.

What the rules leave open:
  - A schedule that never ran counts intervals from its creation, or has its first run at start_at; clamps
    count from now. Its cron slots begin with the first after the creation.
  - `since` cuts off cron slots of a time when the schedule was disabled, paused or had another timetable:
    those are never made up for. A pause that ended by itself is such a cut as well.
  - A last start in the future (the clock went back) counts as now, so that nothing stalls.
  - Without any candidate (a cron expression that never comes again) the max clamp alone decides, if there is
    one.
  - Jitter is no part of the plan: it spreads the firing of a baseline afterwards (`timetable.fire_at`). So the
    next baseline interval counts from where the last start would have been without its jitter.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from holdbeat.domain.bounds import LAST_INSTANT
from holdbeat.domain.clock import from_iso, iso
from holdbeat.domain.cron import Cron, zone_of
from holdbeat.domain.schedule import INDEFINITE, Schedule
from holdbeat.domain.timetable import MILLISECOND, interval_of

MOST_DOUBLINGS = 5

CRON = "cron"
INTERVAL = "interval"
HINT_INTERVAL = "hint_interval"
HINT_NEXT_RUN = "hint_next_run"


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The inputs of a plan besides the time. The failure count is already that after the last run."""

    schedule: Schedule
    last_start: datetime | None = None
    last_due: datetime | None = None
    """The intended slot of the last run: a run that began early must not meet its own slot again."""
    last_finish: datetime | None = None
    last_jitter: timedelta = timedelta()
    """By how much jitter moved the last start."""
    jitter: timedelta = timedelta()
    """By how much jitter moved the firing of the job in flight."""
    since: datetime | None = None
    """Cron slots before it are not made up for."""
    not_before: datetime | None = None
    """A lower bound for this plan alone, so that many schedules do not start at once."""
    retry_after: datetime | None = None
    """Until when the server of an endpoint asked not to be called."""
    in_flight: bool = False

    @staticmethod
    def of(schedule: Schedule, *, in_flight: bool = False) -> PlanInputs:
        """The inputs as the schedule remembers them from its last decision."""
        memory = (schedule.last_decision or {}).get("memory") or {}

        def remembered(name: str) -> datetime | None:
            return from_iso(memory[name]) if memory.get(name) else None

        return PlanInputs(
            schedule,
            last_start=schedule.last_run_at,
            last_due=remembered("last_due"),
            last_finish=remembered("last_finish"),
            last_jitter=timedelta(seconds=memory.get("last_jitter_s", 0)),
            jitter=timedelta(seconds=memory.get("jitter_s", 0)),
            since=remembered("since"),
            retry_after=remembered("retry_after"),
            in_flight=in_flight,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    next_run_at: datetime | None
    decision: dict[str, Any]
    """JSON: all candidates, the winner, the clamps, the notes, and a sentence for a person."""
    replan_at: datetime | None = None
    """When a hint that this plan rests on expires before the planned time."""

    @property
    def winner(self) -> str | None:
        winner: str | None = self.decision["winner"]
        return winner

    @property
    def sentence(self) -> str:
        sentence: str = self.decision["sentence"]
        return sentence


@dataclass(slots=True)
class _Candidate:
    name: str
    at: datetime
    why: str


_at = attrgetter("at")


def plan(inputs: PlanInputs, now: datetime) -> Plan:
    """The next run of an adaptive schedule (GOV-01 to GOV-09)."""
    schedule = inputs.schedule
    if not schedule.enabled:
        return _no_run(inputs, now, "It is disabled: nothing is planned until it is enabled.")
    if inputs.in_flight:
        return _no_run(inputs, now, "A job of it is unfinished: the next run is planned when that ends.")
    if schedule.paused_until is not None and schedule.paused_until >= INDEFINITE:
        return _no_run(inputs, now, f"It is paused until somebody resumes it{_because(schedule.pause_reason)}.")

    candidates, hints = _candidates(inputs, now)
    winner, notes = _winner(candidates, hints)
    clamps: list[dict[str, Any]] = []
    next_run_at = _clamped(inputs, winner, now, clamps)
    if next_run_at is None:
        return _no_run(inputs, now, "Its cron expression never comes again.", candidates)
    next_run_at = _lifted(inputs, next_run_at, now, clamps)
    if schedule.end_at is not None and next_run_at > schedule.end_at:
        return _no_run(inputs, now, f"It is over: end_at is {iso(schedule.end_at)}.", candidates)

    replan_at = min((at for at in hints.values() if at < next_run_at), default=None)
    decision = _decision(inputs, now, next_run_at, replan_at, candidates, winner, clamps, notes)
    return Plan(next_run_at, decision, replan_at)


def unplannable(inputs: PlanInputs, trouble: str, now: datetime) -> Plan:
    """No plan, because the timetable cannot be read; what is remembered stays for when it can."""
    return _no_run(inputs, now, f"It cannot be planned: {trouble}")


def _candidates(inputs: PlanInputs, now: datetime) -> tuple[list[_Candidate], dict[str, datetime]]:
    """All candidates, none in the past, and the expiry of each live hint."""
    schedule = inputs.schedule
    # Intervals begin at the last start, or before the first run at the creation.
    anchor = min(inputs.last_start or schedule.created_at, now)
    candidates: list[_Candidate] = []
    if schedule.cron is not None:
        slot = _next_slot(inputs, anchor)
        if slot is not None and slot < now:
            candidates.append(
                _Candidate(CRON, now, f"its slot {iso(slot)} has passed: once now, then back to the grid")
            )
        elif slot is not None:
            candidates.append(_Candidate(CRON, slot, f"next slot of {schedule.cron} in {schedule.timezone}"))
    else:
        candidates.append(_baseline_interval(inputs, anchor, now))
    hints: dict[str, datetime] = {}
    expires_at = schedule.hint_interval_expires_at
    if schedule.hint_interval_s is not None and expires_at is not None and expires_at > now:
        at, why = _from_start(inputs, anchor, interval_of(schedule.hint_interval_s), now)
        candidates.append(_Candidate(HINT_INTERVAL, at, f"{why}{_because(schedule.hint_interval_reason)}"))
        hints[HINT_INTERVAL] = expires_at
    expires_at = schedule.hint_next_run_expires_at
    if schedule.hint_next_run_at is not None and expires_at is not None and expires_at > now:
        at = max(schedule.hint_next_run_at, now)
        candidates.append(
            _Candidate(HINT_NEXT_RUN, at, f"the time that a hint asks for{_because(schedule.hint_next_run_reason)}")
        )
        hints[HINT_NEXT_RUN] = expires_at
    return candidates, hints


def _next_slot(inputs: PlanInputs, anchor: datetime) -> datetime | None:
    schedule = inputs.schedule
    after = anchor if inputs.last_due is None else max(anchor, inputs.last_due)
    for bound in (inputs.since, schedule.paused_until, schedule.start_at):
        if bound is not None and bound > after:
            after = bound - MILLISECOND
    return Cron.parse(schedule.cron or "").next_after(after, zone_of(schedule.timezone), schedule.dst)


def _baseline_interval(inputs: PlanInputs, anchor: datetime, now: datetime) -> _Candidate:
    schedule = inputs.schedule
    if inputs.last_start is None and inputs.last_finish is None and schedule.start_at is not None:
        return _Candidate(INTERVAL, max(schedule.start_at, now), "the first run is at start_at")
    doublings = min(schedule.failure_count, MOST_DOUBLINGS)
    step = interval_of(schedule.interval_s) * 2**doublings
    at, why = _from_start(inputs, anchor, step, now, inputs.last_jitter if inputs.last_start is not None else None)
    if doublings:
        failures = "1 failure" if schedule.failure_count == 1 else f"{schedule.failure_count} failures"
        why = f"{why}, {2**doublings} times longer after {failures} in a row"
    return _Candidate(INTERVAL, at, why)


def _from_start(
    inputs: PlanInputs, anchor: datetime, step: timedelta, now: datetime, jitter: timedelta | None = None
) -> tuple[datetime, str]:
    """One interval after the last start, or after the finish if the run took longer; never before now."""
    at = anchor + step
    why = "after the last start" if inputs.last_start is not None else "after the creation"
    if inputs.last_finish is not None and at < inputs.last_finish:
        # A finish in the future can only be a clock that went back.
        at = min(inputs.last_finish, now) + step
        why = "after the last run's end, since it took longer than that"
    elif inputs.last_finish is not None and inputs.last_due is not None and at <= inputs.last_due:
        # Its slot is used up although it never started: the job was cancelled at the instant it was made.
        at = min(inputs.last_finish, now) + step
        why = "after the last job ended without a start"
    elif jitter:
        at -= jitter
        why = f"{why}, whose jitter of {jitter.total_seconds():g} s does not count"
    if at < now:
        at, why = now, f"{why}: that has passed"
    return at, f"{step.total_seconds():g} s {why}"


def _winner(candidates: list[_Candidate], hints: dict[str, datetime]) -> tuple[_Candidate | None, list[str]]:
    if not candidates:
        return None, []
    hinted = [candidate for candidate in candidates if candidate.name in hints]
    # Of equals min keeps the first, here the one-shot: the decision names the one that the run uses up.
    if len(hinted) == 2:
        return min(reversed(hinted), key=_at), ["Both hints are set: the earlier wins, the baseline is ignored."]
    if hinted and hinted[0].name == HINT_INTERVAL:
        return hinted[0], ["The hinted interval replaces the baseline."]
    return min(reversed(candidates), key=_at), []


def _clamped(
    inputs: PlanInputs, winner: _Candidate | None, now: datetime, clamps: list[dict[str, Any]]
) -> datetime | None:
    schedule = inputs.schedule
    start = now if inputs.last_start is None else min(inputs.last_start, now)
    at = winner.at if winner is not None else None
    if at is not None and inputs.retry_after is not None and at < inputs.retry_after:
        clamps.append(_moved("retry_after", at, inputs.retry_after))
        at = inputs.retry_after
    if at is not None and schedule.min_interval_s is not None:
        earliest = start + interval_of(schedule.min_interval_s)
        if at < earliest:
            clamps.append(_moved("min_interval_s", at, earliest))
            at = earliest
    if schedule.max_interval_s is not None:
        latest = max(start + interval_of(schedule.max_interval_s), now)
        if at is None or at > latest:
            clamps.append(_moved("max_interval_s", at, latest))
            at = latest
    return at if at is None or at < LAST_INSTANT else None


def _lifted(inputs: PlanInputs, at: datetime, now: datetime, clamps: list[dict[str, Any]]) -> datetime:
    schedule = inputs.schedule
    for name, floor in (
        ("now", now),
        ("start_at", schedule.start_at),
        ("spread", inputs.not_before),
        ("pause", schedule.paused_until),
    ):
        if floor is not None and at < floor:
            clamps.append(_moved(name, at, floor))
            at = floor
    return at


def _moved(name: str, before: datetime | None, after: datetime) -> dict[str, Any]:
    return {"name": name, "from": iso(before) if before else None, "to": iso(after)}


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


_CLAMP_WORDS = {
    "retry_after": "moved later by the Retry-After of the last answer",
    "min_interval_s": "moved later by min_interval_s",
    "max_interval_s": "moved earlier by max_interval_s",
    "now": "moved to now",
    "start_at": "moved to start_at",
    "spread": "moved a little, so that not all run at once",
    "pause": "moved to the end of the pause",
}
_WINNER_WORDS = {
    CRON: "by its cron expression",
    INTERVAL: "by its interval",
    HINT_INTERVAL: "by the hinted interval",
    HINT_NEXT_RUN: "by the hinted time",
    None: "by its longest interval",
}


def _decision(
    inputs: PlanInputs,
    now: datetime,
    next_run_at: datetime | None,
    replan_at: datetime | None,
    candidates: list[_Candidate],
    winner: _Candidate | None,
    clamps: list[dict[str, Any]],
    notes: list[str],
    sentence: str | None = None,
) -> dict[str, Any]:
    name = winner.name if winner is not None else None
    at = iso(next_run_at) if next_run_at is not None else None
    if sentence is None:
        reason = f": {winner.why}" if winner is not None else ""
        words = [f"Next run at {at} {_WINNER_WORDS[name]}{reason}"]
        words += [_CLAMP_WORDS[clamp["name"]] for clamp in clamps]
        sentence = "; ".join(words) + "."
    return {
        "decided_at": iso(now),
        "next_run_at": at,
        "replan_at": iso(replan_at) if replan_at is not None else None,
        "winner": name,
        "candidates": [
            {"name": candidate.name, "at": iso(candidate.at), "why": candidate.why} for candidate in candidates
        ],
        "clamps": clamps,
        "notes": notes,
        "failure_count": inputs.schedule.failure_count,
        "sentence": sentence,
        "memory": {
            "last_due": iso(inputs.last_due) if inputs.last_due is not None else None,
            "last_finish": iso(inputs.last_finish) if inputs.last_finish is not None else None,
            "since": iso(inputs.since) if inputs.since is not None else None,
            "retry_after": iso(inputs.retry_after) if inputs.retry_after is not None else None,
            "last_jitter_s": inputs.last_jitter.total_seconds(),
            "jitter_s": inputs.jitter.total_seconds(),
        },
    }


def _no_run(inputs: PlanInputs, now: datetime, sentence: str, candidates: list[_Candidate] | None = None) -> Plan:
    return Plan(None, _decision(inputs, now, None, None, candidates or [], None, [], [], sentence))
