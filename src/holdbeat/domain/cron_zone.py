"""What the clocks on the wall of a zone do: offsets, gaps and folds.

Walls are datetimes as the clocks of a zone show them, instants are datetimes in UTC; both are without tzinfo,
so that arithmetic between them is plain. A gap is a stretch of wall time that a zone skips, whatever its
length: half an hour on Lord Howe, three at Casey, a whole day in Apia. A fold is a stretch that comes twice.
"""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, available_timezones

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
    """What the clocks of the zone show at an instant; `fold` tells the pass."""
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
