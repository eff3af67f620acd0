"""The Occurrence: one due time of a Schedule and its verdict.

Guards that every due time gets exactly one verdict: fired, or the reason why not. After any downtime the
number of verdicts stays bounded, and their counts still add up to all due times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from holdbeat.domain.clock import iso
from holdbeat.domain.schedule import INDEFINITE, CatchUp, Overlap, Schedule
from holdbeat.domain.timetable import MILLISECOND, DueTimes, due_times, fire_at, jittered, next_due

MOST_ROWS = 1000
"""So many due times that do not fire have a row each, the newest; the rest is one row with a count."""


class OccurrenceStatus(StrEnum):
    FIRED = "fired"
    SKIPPED = "skipped"
    MISSED = "missed"
    COALESCED = "coalesced"
    MANUAL = "manual"


@dataclass(slots=True)
class Occurrence:
    """One row: UNIQUE by schedule and due time."""

    id: str
    schedule_id: str
    due_at: datetime
    status: OccurrenceStatus
    recorded_at: datetime
    job_id: str | None = None
    reason: str | None = None
    count: int = 1
    """How many due times this row stands for; more than one only in a summary."""
    late_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one due time, or about `count` of them that begin at `due_at`."""

    due_at: datetime
    status: OccurrenceStatus
    reason: str | None = None
    count: int = 1
    late_s: float = 0.0

    @property
    def fires(self) -> bool:
        return self.status is OccurrenceStatus.FIRED


@dataclass(frozen=True, slots=True)
class DueWork:
    """The verdicts on all that is due, in due order, and the due time that comes next."""

    verdicts: list[Verdict]
    next_run_at: datetime | None


def due_work(schedule: Schedule, now: datetime) -> DueWork:
    """Judges all that is due from `next_run_at` until now; a pause that ended there is a stretch of its own.

    An adaptive schedule has no next time here: it is in flight then, and planned when its chain ends. With jitter
    the due times from the first whose own moment has not come are left for later.
    """
    since = schedule.next_run_at
    if not schedule.enabled:
        return DueWork([], None)
    if since is None or since > now:
        return DueWork([], since)
    if schedule.paused_until is None and schedule.jitter_s <= 0 and not schedule.adaptive:
        # Nearly every fire is of one due time: then two looks at the timetable are enough.
        following = next_due(schedule, since)
        if (following is None or following > now) and next_due(schedule, since - MILLISECOND) == since:
            late = _seconds_after(since, now)
            if late <= schedule.grace_s:
                return DueWork([Verdict(since, OccurrenceStatus.FIRED, None, 1, late)], following)
            return DueWork(catch_up(schedule, (since,), now), following)
    ahead = _ahead(schedule, since, now)
    if ahead is not None:
        if ahead <= since:
            return DueWork([], since)
        return DueWork(_all_judged(schedule, since, ahead - MILLISECOND, now), ahead)
    return DueWork(_all_judged(schedule, since, now, now), None if schedule.adaptive else next_due(schedule, now))


def _ahead(schedule: Schedule, since: datetime, now: datetime) -> datetime | None:
    """The first due time until now that its jitter still holds back."""
    if schedule.adaptive or schedule.jitter_s <= 0:
        return None
    due: datetime | None = max(since, now - timedelta(seconds=schedule.jitter_s)) - MILLISECOND
    while due is not None and (due := next_due(schedule, due)) is not None and due <= now:
        if jittered(schedule.id, due, schedule.jitter_s) > now:
            return due
    return None


def _all_judged(schedule: Schedule, since: datetime, until: datetime, now: datetime) -> list[Verdict]:
    verdicts: list[Verdict] = []
    if not schedule.adaptive and schedule.paused_until is not None and since < schedule.paused_until <= until:
        # Judged apart, so that neither summary counts what belongs to the other.
        verdicts = _judged(schedule, since, schedule.paused_until - MILLISECOND, now)
        since = schedule.paused_until
    return verdicts + _judged(schedule, since, until, now)


def _judged(schedule: Schedule, since: datetime, until: datetime, now: datetime) -> list[Verdict]:
    return catch_up(schedule, due_times(schedule, since, until, listed_for(schedule)), now)


def listed_for(schedule: Schedule) -> int:
    """How many due times `catch_up` may want to see one by one."""
    return MOST_ROWS + schedule.catch_up_limit + 1


def catch_up(schedule: Schedule, due: DueTimes | Sequence[datetime], now: datetime) -> list[Verdict]:
    """One verdict per due time, oldest first; beyond MOST_ROWS that do not fire, one summary per status.

    Due times before `paused_until` are skipped and never caught up. Of the others, those within their grace fire.
    With older ones beside them: `latest` lets the newest due time stand for all (if one within its grace fires, that
    is the one), `none` fires none, `all` fires the newest of everything due. Never more than `catch_up_limit` fire.
    """
    if not schedule.enabled:
        return []
    if not isinstance(due, DueTimes):
        due = DueTimes(tuple(due), 0, due[0] if due else None)
    paused_until = schedule.paused_until
    live = [at for at in due.listed if paused_until is None or at >= paused_until]
    fired = frozenset(_fired(schedule, live, now))
    why_not, why = _why_not(schedule)
    verdicts = [_verdict(schedule, at, OccurrenceStatus.FIRED, None, now) for at in live if at in fired]
    left_out = [_verdict(schedule, at, why_not, why, now) for at in live if at not in fired]
    pause = pause_reason(schedule)
    paused = due.listed[: len(due.listed) - len(live)]
    left_out = [_verdict(schedule, at, OccurrenceStatus.SKIPPED, pause, now) for at in paused] + left_out
    verdicts += left_out[-MOST_ROWS:]
    verdicts += _summaries(due, left_out[:-MOST_ROWS], paused_until, (why_not, why), pause, now)
    verdicts.sort(key=lambda verdict: verdict.due_at)
    return verdicts


def _fired(schedule: Schedule, live: list[datetime], now: datetime) -> list[datetime]:
    on_time = [at for at in live if late_s(schedule, at, now) <= schedule.grace_s][-schedule.catch_up_limit :]
    policy = CatchUp.LATEST if schedule.adaptive else schedule.catch_up
    if policy is CatchUp.NONE:
        return on_time
    if policy is CatchUp.LATEST:
        return on_time or live[-1:]
    return live[-schedule.catch_up_limit :]


def passed_over(schedule: Schedule, due: DueTimes, reason: str, now: datetime) -> list[Verdict]:
    """Due times that a change of the schedule keeps from firing: skipped, a row each up to MOST_ROWS."""
    skipped = [_verdict(schedule, at, OccurrenceStatus.SKIPPED, reason, now) for at in due.listed]
    summaries = _summaries(due, skipped[:-MOST_ROWS], None, (OccurrenceStatus.SKIPPED, reason), reason, now)
    return summaries + skipped[-MOST_ROWS:]


def late_s(schedule: Schedule, due_at: datetime, now: datetime) -> float:
    """How late a due time is. Jitter is not lateness: a due time that it moves is late from there on."""
    if schedule.jitter_s <= 0:
        return _seconds_after(due_at, now)
    if schedule.adaptive:
        # Its jitter depends on the plan, and only the planned time has one.
        planned = fire_at(schedule) if due_at == schedule.next_run_at else None
        return _seconds_after(planned or due_at, now)
    return _seconds_after(jittered(schedule.id, due_at, schedule.jitter_s), now)


def _verdict(
    schedule: Schedule, due_at: datetime, status: OccurrenceStatus, reason: str | None, now: datetime
) -> Verdict:
    return Verdict(due_at, status, reason, 1, late_s(schedule, due_at, now))


def _why_not(schedule: Schedule) -> tuple[OccurrenceStatus, str]:
    if schedule.catch_up is CatchUp.LATEST:
        return OccurrenceStatus.COALESCED, "a later due time fired for this one (catch_up: latest)"
    if schedule.catch_up is CatchUp.NONE:
        return OccurrenceStatus.MISSED, "nobody was there to fire it, and catch_up is none"
    return OccurrenceStatus.MISSED, f"older than the newest {schedule.catch_up_limit} (catch_up_limit)"


def pause_reason(schedule: Schedule) -> str:
    if schedule.paused_until is None or schedule.paused_until >= INDEFINITE:
        paused = "paused"
    else:
        paused = f"paused until {iso(schedule.paused_until)}"
    return f"{paused}: {schedule.pause_reason}" if schedule.pause_reason else paused


def _summaries(
    due: DueTimes,
    unlisted: list[Verdict],
    paused_until: datetime | None,
    left_out: tuple[OccurrenceStatus, str],
    pause: str,
    now: datetime,
) -> list[Verdict]:
    """At most one row per status, at the oldest due time that it stands for."""
    groups: dict[OccurrenceStatus, tuple[datetime, str, int]] = {}
    if due.older and due.oldest is not None:
        # `due_work` passes no stretch in which a pause ends, so the oldest due time decides for all.
        is_paused = paused_until is not None and due.oldest < paused_until
        status, reason = (OccurrenceStatus.SKIPPED, pause) if is_paused else left_out
        groups[status] = (due.oldest, reason, due.older)
    for verdict in unlisted:
        first, reason, count = groups.get(verdict.status, (verdict.due_at, verdict.reason or "", 0))
        groups[verdict.status] = (first, reason, count + 1)
    at_least = "" if due.is_exact else "at least "
    return [
        Verdict(
            first,
            status,
            f"{at_least}{count} due time{'' if count == 1 else 's'} from {iso(first)}: {reason}",
            count,
            _seconds_after(first, now),
        )
        for status, (first, reason, count) in groups.items()
    ]


def _seconds_after(moment: datetime, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds())


class OverlapAction(StrEnum):
    FIRE = "fire"
    FIRE_GATED = "fire_gated"
    """Make the job, but hold it until the unfinished one has ended."""
    SKIP = "skip"
    CANCEL_PREVIOUS = "cancel_previous"
    """Cancel what is unfinished, then make the job and hold it until that has ended."""


@dataclass(frozen=True, slots=True)
class OverlapDecision:
    action: OverlapAction
    reason: str | None = None

    @property
    def fires(self) -> bool:
        return self.action is not OverlapAction.SKIP


def overlap(policy: Overlap, has_begun: bool, has_queued: bool) -> OverlapDecision:
    """Decides about a due time while earlier jobs of its schedule are unfinished.

    `has_begun` includes cancelled work whose handler has not ended, and chains whose handler sleeps or waits, or whose
    run failed and is tried again; `has_queued` any other job that waits, gated ones included.
    """
    if policy is Overlap.ALLOW or not (has_begun or has_queued):
        return OverlapDecision(OverlapAction.FIRE)
    if policy is Overlap.SKIP:
        state = "has not ended" if has_begun else "is still queued"
        return OverlapDecision(OverlapAction.SKIP, f"the job of an earlier due time {state} (overlap: skip)")
    if policy is Overlap.QUEUE_ONE:
        if has_queued:
            return OverlapDecision(OverlapAction.SKIP, "one job is waiting already (overlap: queue_one)")
        return OverlapDecision(OverlapAction.FIRE_GATED, "waits for the unfinished job (overlap: queue_one)")
    return OverlapDecision(OverlapAction.CANCEL_PREVIOUS, "replaces the unfinished job (overlap: cancel_previous)")
