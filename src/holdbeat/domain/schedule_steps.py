"""Steps of a Schedule, by people, hints and ended runs: each changes its state and re-plans at once.

Guards that no step erases a field and leaves the old plan standing (GOV-08), that the failure count is
updated before the plan that uses it, and that a one-shot hint is used up by one run.

The steps are pure: they return a changed copy. The caller writes it in the transaction of the step itself.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Any

from holdbeat.domain.bounds import check_duration_s, check_line
from holdbeat.domain.errors import Invalid
from holdbeat.domain.governor import Plan, PlanInputs, plan, unplannable
from holdbeat.domain.ids import spread_of
from holdbeat.domain.occurrence import Verdict, catch_up, late_s, listed_for, passed_over, pause_reason
from holdbeat.domain.schedule import (
    GRACE_S,
    HINT_FIELDS,
    INDEFINITE,
    INTERVAL_HINT_FIELDS,
    ONE_SHOT_HINT_FIELDS,
    TIMING_FIELDS,
    Schedule,
    instant_in,
)
from holdbeat.domain.timetable import (
    MILLISECOND,
    UNREADABLE,
    DueTimes,
    due_times,
    fire_at,
    next_due,
    trouble_of,
)
from holdbeat.schemas import field_bounds

INTERVAL_HINT_LIVES_S = 3600.0
ONE_SHOT_HINT_LIVES_S = 1800.0


class ChainEnd(StrEnum):
    """How the in-flight chain of an adaptive schedule ended."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    """For good: no automatic retry follows."""
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    """The schedule after a step, with the plan of an adaptive one and due times that the step decided."""

    schedule: Schedule
    plan: Plan | None = None
    verdicts: list[Verdict] = field(default_factory=list)


def replanned(
    schedule: Schedule, now: datetime, *, previous: Schedule | None = None, in_flight: bool = False
) -> PlannedSchedule:
    """Plans a new, edited, enabled, disabled or recovered schedule; `previous` is how it was before an edit.

    An edit that leaves the timetable as it was moves no due time. A new timetable begins now: what it would
    have had earlier is not made up for, except that a due time that is not late and that the trigger has not
    reached yet is left to it, so that an edit at the very instant of firing loses nothing (TIME-06).
    """
    cut = _cut(schedule, previous, now)
    if schedule.adaptive:
        inputs = PlanInputs.of(schedule, in_flight=in_flight)
        return _planned(schedule, replace(inputs, since=cut) if cut is not None else inputs, now)
    if cut is not None and previous is not None:
        return _begun_anew(schedule, previous, now)
    if not schedule.enabled:
        return PlannedSchedule(replace(schedule, next_run_at=None, trouble=None))
    if schedule.next_run_at is not None:
        # Trouble is forgotten: the trigger looks at once whether it is over.
        return PlannedSchedule(replace(schedule, trouble=None))
    return PlannedSchedule(_with_next_due(schedule, now))


def _cut(schedule: Schedule, previous: Schedule | None, now: datetime) -> datetime | None:
    """From when on the due times of a changed timetable count; None if the timetable is as it was."""
    if previous is None or all(getattr(schedule, name) == getattr(previous, name) for name in TIMING_FIELDS):
        return None
    pending = previous.next_run_at
    if previous.enabled and pending is not None and timedelta() <= now - pending <= timedelta(seconds=GRACE_S):
        return pending
    return now


def _begun_anew(schedule: Schedule, previous: Schedule, now: datetime) -> PlannedSchedule:
    """A changed timetable begins now. Due times of the old one that were not judged yet get their verdict.

    Those that are not late, or whose jitter still holds them back, stay due if the new timetable has them too. The
    others are skipped: none is lost without a row (TIME-02).
    """
    pending = previous.next_run_at if previous.enabled else None
    due = DueTimes()
    kept: list[datetime] = []
    if pending is not None and pending <= now:
        with suppress(*UNREADABLE):
            due = due_times(previous, pending, now, listed_for(previous))
            if schedule.enabled:
                on_time = [at for at in due.listed if late_s(previous, at, now) <= previous.grace_s]
                kept = [at for at in on_time if next_due(schedule, at - MILLISECOND) == at]
    dropped = replace(due, listed=tuple(at for at in due.listed if at not in kept))
    change = "changed" if schedule.enabled else "disabled"
    verdicts = passed_over(previous, dropped, f"the schedule was {change} before it fired", now)
    if not schedule.enabled:
        return PlannedSchedule(replace(schedule, next_run_at=None, trouble=None), None, verdicts)
    if kept:
        return PlannedSchedule(replace(schedule, next_run_at=kept[0], trouble=None), None, verdicts)
    return PlannedSchedule(_with_next_due(schedule, now), None, verdicts)


def _with_next_due(schedule: Schedule, now: datetime) -> Schedule:
    # A due time exactly at start_at counts, also when that is this very moment.
    after = now - MILLISECOND if schedule.start_at == now else now
    try:
        return replace(schedule, next_run_at=next_due(schedule, after), trouble=None)
    except UNREADABLE as error:
        return replace(schedule, next_run_at=max(after, now), trouble=trouble_of(error))


def _planned(schedule: Schedule, inputs: PlanInputs, now: datetime) -> PlannedSchedule:
    """Drops what has expired, plans, and keeps the decision in the schedule."""
    expired: dict[str, Any] = {}
    for names in (INTERVAL_HINT_FIELDS, ONE_SHOT_HINT_FIELDS):
        expires_at = getattr(schedule, names[1])
        if getattr(schedule, names[0]) is not None and (expires_at is None or expires_at <= now):
            expired |= dict.fromkeys(names)
    if expired:
        schedule = replace(schedule, **expired)
    inputs = replace(inputs, schedule=schedule)
    trouble = None
    try:
        decided = plan(inputs, now)
    except UNREADABLE as error:
        trouble = trouble_of(error)
        decided = unplannable(inputs, trouble, now)
    after = replace(schedule, next_run_at=decided.next_run_at, last_decision=decided.decision, trouble=trouble)
    return PlannedSchedule(after, decided, _replaced_plan(schedule, after, now))


def _replaced_plan(before: Schedule, after: Schedule, now: datetime) -> list[Verdict]:
    """The verdict on a planned time that has come, but whose jitter or a slow trigger left it to a change."""
    due_at = before.next_run_at
    if due_at is None or due_at > now or after.next_run_at == due_at:
        return []
    if not after.enabled:
        reason = "the schedule was disabled before it fired"
    elif after.is_paused(now):
        reason = pause_reason(after)
    else:
        reason = "the schedule was planned anew before it fired"
    return passed_over(before, DueTimes((due_at,), 0, due_at), reason, now)


def fired(schedule: Schedule, due_at: datetime, now: datetime) -> Schedule:
    """The schedule once a job of it was made, by the trigger or by hand.

    An adaptive one is in flight now and has no next time; a one-shot hint whose time has come is used up.
    """
    if not schedule.adaptive:
        return schedule
    planned = fire_at(schedule) if due_at == schedule.next_run_at else None
    used = _without_used_one_shot(schedule, max(due_at, now))
    inputs = replace(PlanInputs.of(used, in_flight=True), jitter=(planned or due_at) - due_at)
    return replace(_planned(used, inputs, now).schedule, trouble=schedule.trouble)


def after_run(
    schedule: Schedule,
    outcome: ChainEnd | str,
    started_at: datetime | None,
    due_at: datetime | None,
    now: datetime,
    retry_after: datetime | None = None,
) -> PlannedSchedule:
    """The end of a chain: counts the failure or forgets them, then plans (GOV-01, GOV-04, GOV-09).

    `started_at` is None if the job was cancelled before it ran. A hint that was set while the chain ran lies later than
    its start, so it stays. `retry_after` is until when the called server wants no other call.
    """
    end = ChainEnd(outcome)
    schedule = replace(schedule, last_run_at=started_at or schedule.last_run_at)
    if not schedule.adaptive:
        return PlannedSchedule(schedule)
    if end is ChainEnd.COMPLETED:
        schedule.failure_count = 0
    elif end is ChainEnd.FAILED:
        schedule.failure_count += 1
    begun = max((at for at in (started_at, due_at) if at is not None), default=None)
    if begun is not None:
        schedule = _without_used_one_shot(schedule, begun)
    # What `since` cuts off may have been decided while the chain ran: it is remembered, not reset.
    inputs = PlanInputs.of(schedule)
    last_jitter = inputs.jitter if started_at is not None else inputs.last_jitter
    inputs = replace(inputs, last_due=due_at, last_finish=now, last_jitter=last_jitter, jitter=timedelta())
    if started_at is not None:
        inputs = replace(inputs, retry_after=retry_after)
    return _planned(schedule, inputs, now)


def beyond(schedule: Schedule, due_at: datetime, now: datetime) -> PlannedSchedule:
    """Plans strictly after a due time that was judged before, such as one that a clock which went back meets again."""
    planned = after_run(schedule, ChainEnd.SKIPPED, None, due_at, now)
    next_run_at = planned.schedule.next_run_at
    if next_run_at is None or next_run_at > due_at:
        return planned
    inputs = replace(PlanInputs.of(planned.schedule), not_before=due_at + MILLISECOND)
    return _planned(planned.schedule, inputs, now)


def _without(schedule: Schedule, names: tuple[str, ...]) -> Schedule:
    cleared: dict[str, Any] = dict.fromkeys(names)
    return replace(schedule, **cleared)


def _without_used_one_shot(schedule: Schedule, begun: datetime) -> Schedule:
    """Any run that begins at or after the hinted time is the one that was asked for."""
    if schedule.hint_next_run_at is None or schedule.hint_next_run_at > begun:
        return schedule
    return _without(schedule, ONE_SHOT_HINT_FIELDS)


def with_hint(
    schedule: Schedule,
    now: datetime,
    *,
    interval_s: float | None = None,
    next_run_at: datetime | str | None = None,
    ttl_s: float | None = None,
    reason: str | None = None,
    in_flight: bool = False,
) -> PlannedSchedule:
    """Sets one hint or both, each with its own expiry. A one-shot time that has just passed means now."""
    _require_adaptive(schedule, "hints")
    if interval_s is None and next_run_at is None:
        raise Invalid("A hint needs interval_s, next_run_at, or both.", code="empty_hint", field="interval_s")
    if reason is not None:
        check_line(reason, "reason", field_bounds.LONGEST_REASON, shortest=0)
    # In whole milliseconds, as it is stored: an expiry between two of them would be looked for too early.
    lives = None if ttl_s is None else timedelta(milliseconds=ceil(check_duration_s(ttl_s, "ttl_s", 0.001) * 1000))
    changes: dict[str, Any] = {}
    if interval_s is not None:
        check_duration_s(interval_s, "interval_s", field_bounds.SHORTEST_INTERVAL_S, field_bounds.LONGEST_INTERVAL_S)
        expires_at = now + (lives or timedelta(seconds=INTERVAL_HINT_LIVES_S))
        changes |= dict(zip(INTERVAL_HINT_FIELDS, (interval_s, expires_at, reason), strict=True))
    if next_run_at is not None:
        at = _one_shot_time(schedule, next_run_at, now)
        if in_flight:
            # A run that started in this very millisecond was not caused by the hint, and must not use it up.
            at = max(at, now + MILLISECOND)
        expires_at = now + lives if lives is not None else at + timedelta(seconds=ONE_SHOT_HINT_LIVES_S)
        if expires_at < at:
            raise Invalid(
                "The hint would expire before its own time: raise ttl_s or choose an earlier next_run_at.",
                code="hint_expires_early",
                field="ttl_s",
            )
        changes |= dict(zip(ONE_SHOT_HINT_FIELDS, (at, expires_at, reason), strict=True))
    return replanned(replace(schedule, **changes), now, in_flight=in_flight)


def _one_shot_time(schedule: Schedule, value: datetime | str, now: datetime) -> datetime:
    at = instant_in(schedule.timezone, value, "next_run_at")
    if at <= now - timedelta(seconds=ONE_SHOT_HINT_LIVES_S):
        raise Invalid("next_run_at has passed: give a time from now on.", code="hint_in_past", field="next_run_at")
    if at > now + timedelta(seconds=field_bounds.YEAR_S):
        raise Invalid("next_run_at must lie within a year.", code="out_of_range", field="next_run_at")
    return max(at, now)


def cleared_hints(schedule: Schedule, now: datetime, *, in_flight: bool = False) -> PlannedSchedule:
    _require_adaptive(schedule, "hints")
    return replanned(_without(schedule, HINT_FIELDS), now, in_flight=in_flight)


def reset_failures(schedule: Schedule, now: datetime, *, in_flight: bool = False) -> PlannedSchedule:
    """Ends the backoff, and the wait that a server asked for."""
    _require_adaptive(schedule, "the failure count")
    calm = replace(schedule, failure_count=0)
    return _planned(calm, replace(PlanInputs.of(calm, in_flight=in_flight), retry_after=None), now)


def _require_adaptive(schedule: Schedule, what: str) -> None:
    if not schedule.adaptive:
        raise Invalid(
            f"Only adaptive schedules have {what}: set adaptive to true first.",
            code="not_adaptive",
            field="adaptive",
        )


def paused(
    schedule: Schedule, until: datetime | str | None, reason: str | None, now: datetime, *, in_flight: bool = False
) -> PlannedSchedule:
    """Pauses everything until an instant, or until it is resumed (None); an adaptive one is planned behind that."""
    if reason is not None:
        check_line(reason, "reason", field_bounds.LONGEST_REASON, shortest=0)
    end = INDEFINITE if until is None or until == INDEFINITE else instant_in(schedule.timezone, until, "until")
    if end <= now:
        raise Invalid("until must lie in the future.", code="pause_in_past", field="until")
    return replanned(replace(schedule, paused_until=end, pause_reason=reason), now, in_flight=in_flight)


def resumed(schedule: Schedule, now: datetime, *, spread_s: float = 0.0, in_flight: bool = False) -> PlannedSchedule:
    """Ends the pause. What fell into it and is not recorded yet is recorded as skipped, never caught up.

    An adaptive schedule starts its cron slots anew; `spread_s` keeps many that resume together apart. A plain
    one is on its own grid already and needs no spreading.
    """
    if schedule.paused_until is None:
        return replanned(schedule, now, in_flight=in_flight)
    end = min(schedule.paused_until, now)
    free = replace(schedule, paused_until=None, pause_reason=None)
    if schedule.adaptive:
        floor = now + timedelta(milliseconds=int(spread_of(schedule.id) * spread_s * 1000))
        inputs = replace(PlanInputs.of(free, in_flight=in_flight), since=end, not_before=floor)
        return _planned(free, inputs, now)
    pending = schedule.next_run_at
    if pending is None or pending >= end:
        return replanned(free, now)
    try:
        due = due_times(schedule, pending, end - MILLISECOND, listed_for(schedule))
        free.next_run_at, free.trouble = next_due(schedule, end - MILLISECOND), None
        return PlannedSchedule(free, None, catch_up(schedule, due, now))
    except UNREADABLE as error:
        # What fell into the pause cannot be told any more, but it is not caught up later either.
        return PlannedSchedule(replace(free, next_run_at=end, trouble=trouble_of(error)))
