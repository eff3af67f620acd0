"""Cron by brute force: looks at every minute of a stretch of time, one after the other.

It shares nothing with the product: its own reading of the fields, and a clock that simply walks on and
compares what it shows now with the latest that it ever showed. If it shows more than one minute later, it
passed a gap; if it shows nothing later, it is in a second pass.
"""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTHS = ("", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class Walking:
    """An expression that can only say whether one wall time matches."""

    def __init__(self, text: str) -> None:
        minute, hour, day, month, weekday = text.lower().split()
        self.minutes = numbers(minute, 0, 59)
        self.hours = numbers(hour, 0, 23)
        self.months = numbers(month, 1, 12, MONTHS)
        self.day, self.weekday = day, weekday
        self.both_must_match = day[0] == "*" or weekday[0] == "*"
        self.begins_with_a_star = minute[0] == "*" or hour[0] == "*"
        self.matches_date = cache(self._matches_date)

    def matches(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and self.matches_date(wall.date())

    def _matches_date(self, day: date) -> bool:
        of_month = any(self._day_term(term, day) for term in self.day.split(","))
        of_week = any(self._weekday_term(term, day) for term in self.weekday.split(","))
        fits = (of_month and of_week) if self.both_must_match else (of_month or of_week)
        return fits and day.month in self.months

    def _day_term(self, term: str, day: date) -> bool:
        last = calendar.monthrange(day.year, day.month)[1]
        if term == "l":
            return day.day == last
        if term == "lw":
            return day == max(d for n in range(1, last + 1) if (d := day.replace(day=n)).isoweekday() not in (6, 7))
        return day.day in numbers(term, 1, 31)

    def _weekday_term(self, term: str, day: date) -> bool:
        if not term.endswith("l") and "#" not in term:
            return day.isoweekday() % 7 in {n % 7 for n in numbers(term, 0, 7, DAYS)}
        same_weekdays = [
            d
            for n in range(1, calendar.monthrange(day.year, day.month)[1] + 1)
            if (d := day.replace(day=n)).weekday() == day.weekday()
        ]
        if term.endswith("l"):
            return int(term[:-1]) % 7 == day.isoweekday() % 7 and day == same_weekdays[-1]
        name, _, nth = term.partition("#")
        return self._weekday_term(name, day) and same_weekdays.index(day) + 1 == int(nth)


@cache
def numbers(field: str, low: int, high: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    def number(word: str) -> int:
        return names.index(word) if word in names else int(word)

    collected: set[int] = set()
    for term in field.split(","):
        values, _, step = term.partition("/")
        first, _, last = values.partition("-")
        start = low if values == "*" else number(first)
        stop = high if values == "*" else number(last or first)
        collected.update(range(start, stop + 1, int(step or "1")))
    return frozenset(collected)


@cache
def timeline(zone: ZoneInfo, start: datetime, minutes: int) -> list[tuple[datetime, datetime]]:
    """Every minute from an instant on, with what the clocks of the zone show at it."""
    instants = [start + MINUTE * n for n in range(minutes)]
    return [(at, at.astimezone(zone).replace(tzinfo=None, fold=0)) for at in instants]


@cache
def first_instants(zone: ZoneInfo, start: datetime, minutes: int) -> dict[datetime, datetime]:
    """When the clocks of the zone first show each wall time of a stretch."""
    instants: dict[datetime, datetime] = {}
    for at, wall in timeline(zone, start, minutes):
        instants.setdefault(wall, at)
    return instants


def fires(text: str, zone: ZoneInfo, dst: str, start: datetime, minutes: int) -> list[datetime]:
    """All fires of a stretch of time, by the words of the three policies."""
    expression = Walking(text)
    walk = timeline(zone, start.astimezone(UTC), minutes)
    if expression.begins_with_a_star:
        return [at for at, wall in walk if expression.matches(wall)]
    collected: set[datetime] = set()
    first_shown = first_instants(zone, start.astimezone(UTC), minutes)
    latest = walk[0][1] - MINUTE
    for at, wall in walk:
        if wall <= latest:
            continue
        gap = wall - latest - MINUTE
        for missing in (latest + MINUTE * n for n in range(1, gap // MINUTE + 1)):
            if not expression.matches(missing):
                continue
            if dst == "vixie":
                collected.add(at)
            elif dst == "shift" and missing + gap in first_shown:
                collected.add(first_shown[missing + gap])
        if expression.matches(wall):
            collected.add(at)
        latest = wall
    return sorted(collected)
