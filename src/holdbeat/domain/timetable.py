"""The due times of a Schedule by its cron expression or fixed grid, before anything adapts them.

Guards that a due time is a property of the schedule alone: asked twice, from whatever moment, the same ones
come, in order, each once. Jitter moves when a due time is fired, never the due time itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice

from holdbeat.domain.bounds import LAST_INSTANT, check_whole_number
from holdbeat.domain.cron import Cron, Dst, Fire, zone_of
from holdbeat.domain.errors import HoldbeatError, Invalid
from holdbeat.domain.ids import spread_of
from holdbeat.domain.schedule import INDEFINITE, Schedule
from holdbeat.schemas.field_bounds import MOST_PREVIEWED

MILLISECOND = timedelta(milliseconds=1)
DAY = timedelta(days=1)
MOST_LISTED = 100_000
COUNTED_ONE_BY_ONE = 5000
"""So many due times are walked through; what lies further back is counted by days."""
MOST_COUNTED = 120_000
"""Older due times than these are not counted at all: the count is then a lower bound, and says so."""


UNREADABLE = (HoldbeatError, ValueError, LookupError, TypeError, ArithmeticError)
"""What reading a timetable raises when its zone is gone, or when a hand wrote what no verb would."""


def trouble_of(error: BaseException) -> str:
    """One of these as the reason that is kept with the schedule."""
    return error.detail if isinstance(error, HoldbeatError) else f"{type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True)
class DueTimes:
    """The newest due times of a stretch one by one, oldest first, and how many lie before them."""

    listed: tuple[datetime, ...] = ()
    older: int = 0
    oldest: datetime | None = None
    """The first due time of the whole stretch."""
    is_exact: bool = True
    """False: there were more than `older` says."""

    @property
    def total(self) -> int:
        return self.older + len(self.listed)


def next_due(schedule: Schedule, after: datetime) -> datetime | None:
    """The first due time strictly after an instant, within start_at and end_at (both included).

    A cron expression gives its own times. An interval keeps a fixed grid: from start_at, or from one interval
    after the creation. A moment before the creation can only come from a clock that went back: there the grid
    goes on, so that nothing waits until the clock is where it was. Whether the schedule is enabled or paused does
    not matter here.
    """
    if schedule.start_at is not None and after < schedule.start_at:
        after = schedule.start_at - MILLISECOND
    if schedule.cron is not None:
        due = Cron.parse(schedule.cron).next_after(after, zone_of(schedule.timezone), schedule.dst)
    else:
        first, step = _grid(schedule)
        went_back = schedule.start_at is None and after < schedule.created_at - MILLISECOND
        due = first if after < first and not went_back else first + ((after - first) // step + 1) * step
    if due is None or due >= LAST_INSTANT or (schedule.end_at is not None and due > schedule.end_at):
        return None
    return due


def _grid(schedule: Schedule) -> tuple[datetime, timedelta]:
    step = interval_of(schedule.interval_s)
    return (schedule.start_at or schedule.created_at + step), step


def interval_of(interval_s: float | None) -> timedelta:
    """An interval in whole milliseconds, as all instants are."""
    if interval_s is None:
        raise ValueError("a schedule without a cron expression has an interval")
    return timedelta(milliseconds=round(interval_s * 1000))


def jittered(schedule_id: str, due_at: datetime, jitter_s: float) -> datetime:
    """When to fire a due time: up to `jitter_s` later, always the same for one schedule and due time."""
    if jitter_s <= 0:
        return due_at
    key = f"{schedule_id}@{int(due_at.timestamp() * 1000)}"
    return due_at + timedelta(milliseconds=int(spread_of(key) * jitter_s * 1000))


def next_run(schedule: Schedule) -> datetime | None:
    """The next due time that fires. Those of a plain schedule inside its pause come first, but are only recorded."""
    due = schedule.next_run_at
    until = schedule.paused_until
    if due is None or until is None or schedule.adaptive or due >= until:
        return due
    try:
        return None if until >= INDEFINITE else next_due(schedule, until - MILLISECOND)
    except UNREADABLE:
        return None


def fires_at(schedule: Schedule) -> datetime | None:
    """When the next run fires: `next_run` with its jitter."""
    due = next_run(schedule)
    return fire_at(schedule if due == schedule.next_run_at else replace(schedule, next_run_at=due))


def fire_at(schedule: Schedule) -> datetime | None:
    """When the trigger fires `next_run_at`: the jitter added, where it does no harm.

    A hint, a pause's end and "at once" mean what they say, so an adaptive schedule is spread only when its
    baseline won, and never beyond its max clamp or its end.
    """
    due = schedule.next_run_at
    if due is None or schedule.jitter_s <= 0:
        return due
    at = jittered(schedule.id, due, schedule.jitter_s)
    if not schedule.adaptive:
        return at
    decision = schedule.last_decision or {}
    if decision.get("winner") not in ("cron", "interval") or decision.get("clamps"):
        return due
    if schedule.max_interval_s is not None and schedule.last_run_at is not None:
        at = min(at, schedule.last_run_at + interval_of(schedule.max_interval_s))
    if schedule.end_at is not None:
        at = min(at, schedule.end_at)
    return max(at, due)


def due_times(schedule: Schedule, since: datetime, until: datetime, limit: int) -> DueTimes:
    """The due times from `since` to `until` (both included): the newest `limit` listed, the older counted.

    An adaptive schedule has one, the planned. Work and memory are bounded however long the stretch is: an
    interval is counted by arithmetic, a cron expression one by one up to COUNTED_ONE_BY_ONE, beyond that day
    by day (remembered, so that a thousand schedules with one expression count once), until
    MOST_COUNTED.
    """
    limit = check_whole_number(limit, "limit", 1, MOST_LISTED)
    if schedule.adaptive:
        planned = schedule.next_run_at
        if planned is None or not since <= planned <= until:
            return DueTimes()
        return DueTimes((planned,), 0, planned)
    oldest = next_due(schedule, since - MILLISECOND)
    if schedule.end_at is not None:
        until = min(until, schedule.end_at)
    if oldest is None or oldest > until:
        return DueTimes()
    if schedule.cron is None:
        step = _grid(schedule)[1]
        total = (until - oldest) // step + 1
        older = max(0, total - limit)
        return DueTimes(tuple(oldest + n * step for n in range(older, total)), older, oldest)
    return _cron_due_times(schedule, oldest, until, limit)


def _cron_due_times(schedule: Schedule, oldest: datetime, until: datetime, limit: int) -> DueTimes:
    newest: deque[datetime] = deque(maxlen=limit)
    walked = 0
    for walked, due in enumerate(_cron_between(schedule, oldest - MILLISECOND, until), start=1):
        newest.append(due)
        if walked > COUNTED_ONE_BY_ONE + limit:
            break
    else:
        return DueTimes(tuple(newest), walked - len(newest), oldest)
    # Too many to walk: find the newest from the end, in stretches that double until they hold enough.
    stretch = timedelta(hours=1)
    while True:
        begin = max(oldest, until - stretch)
        newest.clear()
        newest.extend(_cron_between(schedule, begin - MILLISECOND, until))
        if len(newest) >= limit or begin == oldest:
            break
        stretch *= 2
    older, is_exact = _counted(schedule, oldest, newest[0])
    return DueTimes(tuple(newest), older, oldest, is_exact)


def _cron_between(schedule: Schedule, after: datetime, until: datetime) -> Iterator[datetime]:
    cron, zone = Cron.parse(schedule.cron or ""), zone_of(schedule.timezone)
    due = cron.next_after(after, zone, schedule.dst)
    while due is not None and due <= until:
        yield due
        due = cron.next_after(due, zone, schedule.dst)


def _counted(schedule: Schedule, oldest: datetime, before: datetime) -> tuple[int, bool]:
    """How many due times lie in [oldest, before), newest days first, and whether that is all of them."""
    midnight = before.replace(hour=0, minute=0, second=0, microsecond=0)
    count = sum(1 for _ in _cron_between(schedule, max(midnight, oldest) - MILLISECOND, before - MILLISECOND))
    while midnight > oldest and count < MOST_COUNTED:
        midnight -= DAY
        if midnight < oldest:
            end = midnight + DAY - MILLISECOND
            return count + sum(1 for _ in _cron_between(schedule, oldest - MILLISECOND, end)), True
        count += _count_of_day(schedule.cron or "", schedule.timezone, schedule.dst, midnight)
    return count, midnight <= oldest


@lru_cache(maxsize=8192)
def _count_of_day(cron: str, timezone: str, dst: Dst, midnight: datetime) -> int:
    probe = Schedule("", "", midnight, cron=cron, timezone=timezone, dst=dst)
    return sum(1 for _ in _cron_between(probe, midnight - MILLISECOND, midnight + DAY - MILLISECOND))


def preview(schedule: Schedule, after: datetime, n: int) -> list[Fire]:
    """The next `n` due times strictly after an instant, each with its local time and `gap` or `fold`."""
    check_whole_number(n, "n", 1, MOST_PREVIEWED)
    return list(islice(_fires(schedule, after.astimezone(UTC)), n))


def clock_change(fires: Sequence[Fire]) -> tuple[datetime, datetime] | None:
    """When the zone's clocks change next after the first due time, before and after; None if not in thirteen months."""
    if not fires:
        return None
    zone, before = fires[0].local.tzinfo, fires[0].at
    offset = before.astimezone(zone).utcoffset()
    after = before
    while after.astimezone(zone).utcoffset() == offset:
        before, after = after, after + DAY
        if after > fires[0].at + 400 * DAY:
            return None
    while after - before > MILLISECOND:
        middle = before + (after - before) / 2
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    change = (after + MILLISECOND / 2).replace(microsecond=0)
    return (change - timedelta(seconds=1)).astimezone(zone), change.astimezone(zone)


def preview_of(
    *, cron: str | None, interval_s: float | None, timezone: str, dst: Dst, after: datetime, n: int
) -> list[Fire]:
    """Previews a timetable that nobody saved yet; an interval's grid begins at `after`."""
    if (cron is None) == (interval_s is None):
        raise Invalid("Give a cron expression or interval_s, one of them.", code="cron_or_interval", field="cron")
    unsaved = Schedule("", "preview", after, cron=cron, interval_s=interval_s, timezone=timezone, dst=dst)
    return preview(unsaved, after, n)


def _fires(schedule: Schedule, after: datetime) -> Iterator[Fire]:
    zone = zone_of(schedule.timezone)
    if schedule.cron is not None:
        if schedule.start_at is not None and after < schedule.start_at:
            after = schedule.start_at - MILLISECOND
        for fire in Cron.parse(schedule.cron).fires(after, zone, schedule.dst):
            if schedule.end_at is not None and fire.at > schedule.end_at:
                return
            yield fire
        return
    due = next_due(schedule, after)
    while due is not None:
        yield Fire(at=due, local=due.astimezone(zone), note=None)
        due = next_due(schedule, due)
