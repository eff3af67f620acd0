"""When a cron schedule fires, in its zone, whatever the clocks there do.

A fire time is strictly after the moment asked about, is a moment that exists, and comes once. What happens to
wall times that a zone skips or repeats depends on the expression and on the schedule's own choice.

When the minute or the hour field begins with `*` the expression follows elapsed time, whatever the choice: it
fires whenever the clocks show a matching minute, in both passes of a fold, never for a gap. Otherwise it names
fixed times, and the choice decides:

    vixie   a time in a gap fires once, right behind it; in a fold it fires in the first pass. Debian's cron does
            the same for clock changes of less than three hours; a larger one it takes for a corrected clock.
    skip    a time in a gap is dropped; in a fold only the first pass fires.
    shift   a time in a gap is moved by the length of the gap; in a fold only the first pass fires.

Walls are datetimes as the clocks of a zone show them, instants are datetimes in UTC; both are without tzinfo, so that
arithmetic between them is plain. A gap is a stretch of wall time that a zone skips, whatever its length; a fold is one
that comes twice.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim

from holdbeat.domain.cron_syntax import Grid, read, simplest, text_of
from holdbeat.domain.errors import Invalid

MINUTE = timedelta(minutes=1)

_SECOND = timedelta(seconds=1)
_ZERO = timedelta()
# "localtime" is whatever the machine is set to: the same schedule would mean another time elsewhere.
_NO_ZONES = frozenset({"localtime", "Factory"})
_NAME = re.compile(r"[A-Za-z0-9_+-]{1,32}(?:/[A-Za-z0-9_+-]{1,32}){0,2}")


def zone_of(name: str) -> ZoneInfo:
    """The zone of an IANA name, spelled exactly; anything else is refused, paths above all."""
    return _zone(_plain_name(name))


def _plain_name(name: object) -> str:
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    quoted = ascii(name)[:40]
    raise _unknown(f"{quoted} is not an IANA timezone; use a name such as Europe/Berlin or UTC.")


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    names = _known_names()
    if name not in names and _is_new(name):
        # The rules were brought up to date while this process runs.
        _known_names.cache_clear()
        names = _known_names()
    if name not in names:
        near = difflib.get_close_matches(name.title(), names, n=1)
        advice = f"did you mean {near[0]}?" if near else "use a name such as Europe/Berlin or UTC."
        raise _unknown(f"{name!r} is not a known IANA timezone; {advice}")
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise _unknown(f"The rules of the timezone {name!r} cannot be read; use another one.") from None


def _is_new(name: str) -> bool:
    """Whether there are rules of that name by now: one look, where listing all names takes hundreds."""
    try:
        ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        return False
    return name not in _NO_ZONES


def offsets(zone: ZoneInfo, wall: datetime) -> tuple[timedelta, timedelta]:
    """The offsets of a wall time in its first and its second pass.

    Equal: it comes once. The first is larger: it comes twice, in a fold. The first is smaller: it never
    comes, and the two are the offsets before and behind the gap.
    """
    return zone.utcoffset(wall.replace(fold=0)) or _ZERO, zone.utcoffset(wall.replace(fold=1)) or _ZERO


def wall_at(zone: ZoneInfo, instant: datetime) -> datetime:
    """The wall time of the zone at an instant; `fold` tells the pass."""
    return instant.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)


def behind_gap(zone: ZoneInfo, wall: datetime) -> datetime:
    """The first whole minute that the clocks show behind the gap that swallowed `wall`."""
    before, behind = offsets(zone, wall)
    early, late = wall - behind, wall - before
    while late - early > _SECOND:
        middle = early + (late - early) // _SECOND // 2 * _SECOND
        if wall_at(zone, middle) - middle == before:
            early = middle
        else:
            late = middle
    end = late + behind
    return end if end.second == 0 else whole_minute(end) + MINUTE


def whole_minute(wall: datetime) -> datetime:
    """The minute that a wall time lies in, of the first pass."""
    return wall.replace(second=0, microsecond=0, fold=0)


@cache
def _known_names() -> frozenset[str]:
    return frozenset(available_timezones()) - _NO_ZONES


def _unknown(sentence: str) -> Invalid:
    return Invalid(sentence, code="unknown_timezone", field="timezone")


__all__ = ["Cron", "Dst", "Fire", "zone_of"]

# Longer than any gap that a zone ever had: looking this far back shows whether one was passed lately.
_GAP_REACH = timedelta(hours=25)
# The calendar's first days: further back a zone's wall time may lie before year 1.
_EARLIEST = datetime(1, 1, 4)  # noqa: DTZ001 -- an instant without its zone, as all arithmetic here


class Dst(StrEnum):
    """The policy for wall times that a zone skips or repeats."""

    VIXIE = "vixie"
    SKIP = "skip"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class Fire:
    """One fire time, as a preview shows it."""

    at: datetime
    """The instant, in UTC."""
    local: datetime
    """The instant as wall time of the zone, with its offset."""
    note: str | None
    """`gap`: it stands for a time that the zone skips. `fold`: the clocks show this time twice."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression that is valid and fires some day; equal to another with the same text."""

    text: str
    _expression: CronSim = field(compare=False, repr=False)
    _grid: Grid = field(compare=False, repr=False)
    _follows_elapsed_time: bool = field(compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Reads five fields or a nickname; raises `Invalid` for everything else."""
        return _parse(text_of(text))

    def next_after(self, after: datetime, zone: ZoneInfo, dst: Dst) -> datetime | None:
        """The first fire strictly after an instant, in UTC; None if the calendar ends before."""
        following = self._next(_instant(after), zone, dst)
        return following[0].replace(tzinfo=UTC) if following else None

    def fires(self, after: datetime, zone: ZoneInfo, dst: Dst) -> Iterator[Fire]:
        """All fires strictly after an instant, in order."""
        following = self._next(_instant(after), zone, dst)
        while following:
            instant, is_moved = following
            wall = wall_at(zone, instant)
            first, second = offsets(zone, wall)
            note = "gap" if is_moved else "fold" if first > second else None
            at = instant.replace(tzinfo=UTC)
            yield Fire(at=at, local=at.astimezone(zone), note=note)
            following = self._next(instant, zone, dst)

    @property
    def shortest_step(self) -> timedelta:
        """The least time between two matching wall times, on any day."""
        return self._grid.shortest_step

    def describe(self) -> str:
        """The expression as a short sentence, such as `at 09:30 on Monday through Friday`."""
        sentence = simplest(self._expression).explain()
        return sentence[:1].lower() + sentence[1:]

    def _next(self, after: datetime, zone: ZoneInfo, dst: Dst) -> tuple[datetime, bool] | None:
        """The next instant, and whether it stands for a time in a gap."""
        after = max(after, _EARLIEST)
        try:
            if self._follows_elapsed_time:
                at = self._next_elapsed(after, zone)
                return (at, False) if at else None
            return self._next_on_the_wall(after, zone, dst)
        except OverflowError:
            # Beyond the end of the year 9999 there is no instant to fire at.
            return None

    def _next_elapsed(self, after: datetime, zone: ZoneInfo) -> datetime | None:
        """The next instant at which the clocks show a matching minute."""
        now = wall_at(zone, after)
        minute = whole_minute(now)
        next_at = None
        wall = self._grid.at_or_after(minute + MINUTE)
        while wall and not next_at:
            first, second = offsets(zone, wall)
            if first < second:
                wall = self._grid.at_or_after(behind_gap(zone, wall))
                continue
            at = wall - first
            if at <= after:
                at = wall - second
            if at > after:
                next_at = at
            else:
                wall = self._grid.at_or_after(wall + MINUTE)
        first, second = offsets(zone, now)
        if now.fold == 0 and first > second:
            # In the first pass of a fold the clocks will yet show again what they show now and showed before.
            wall = self._grid.at_or_after(whole_minute(minute - (first - second)))
            while wall and wall <= minute:
                at = wall - offsets(zone, wall)[1]
                if at > after:
                    return min(at, next_at) if next_at else at
                wall = self._grid.at_or_after(wall + MINUTE)
        return next_at

    def _next_on_the_wall(self, after: datetime, zone: ZoneInfo, dst: Dst) -> tuple[datetime, bool] | None:
        """The next instant that a matching wall time, shown or skipped, is mapped to."""
        now = wall_at(zone, after)
        start = whole_minute(now) + MINUTE
        # Only `shift` moves times far; else a gap that ends amid a minute holds them until the next one.
        reach = _GAP_REACH if dst == Dst.SHIFT else MINUTE
        gained = (now - after) - offsets(zone, start - reach)[0]
        if gained > timedelta():
            # A gap was passed lately: times inside it may be moved to instants that are still to come.
            start = whole_minute(start - gained)
        moved = None
        wall = self._grid.at_or_after(start)
        while wall:
            first, second = offsets(zone, wall)
            if first < second:
                end = behind_gap(zone, wall)
                at = wall - first if dst == Dst.SHIFT else end - second
                if dst != Dst.SKIP and at > after:
                    # What else lies in this gap is moved to the same instant or later.
                    moved = moved or at
                    wall = self._grid.at_or_after(end)
                else:
                    wall = self._grid.at_or_after(wall + MINUTE if dst == Dst.SHIFT else end)
                continue
            at = wall - first
            if at > after:
                return (moved, True) if moved and moved <= at else (at, False)
            wall = self._grid.at_or_after(wall + MINUTE)
        return (moved, True) if moved else None


@lru_cache(maxsize=8192)
def _parse(text: str) -> Cron:
    expression, grid = read(text)
    # Real cron looks at nothing but the first character of the two fields. cronsim puts seconds before them.
    minute, hour = expression.parts[1:3]
    return Cron(text, expression, grid, minute.startswith("*") or hour.startswith("*"))


def _instant(moment: datetime) -> datetime:
    """The UTC instant without its zone, as the arithmetic here wants it."""
    if moment.tzinfo is None:
        raise ValueError("a moment without a zone is not an instant; hand in an aware datetime")
    return moment.astimezone(UTC).replace(tzinfo=None)
