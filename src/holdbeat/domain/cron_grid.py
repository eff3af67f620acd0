"""The wall times that a cron expression names, without any zone.

A `Grid` answers one question, what is the first matching minute from here on, in a number of steps that is
bounded by the calendar and not by the expression: a month is one lookup. cronsim decides which days match;
a month's days depend on nothing but its length and the weekday it begins on, so 28 answers are all there are.
"""

# ruff: noqa: DTZ001 -- a wall time has no zone
from __future__ import annotations

from collections.abc import Iterable
from datetime import MAXYEAR, date, datetime, timedelta
from itertools import pairwise

from cronsim import CronSim

_NONE = -1
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Grid:
    """The matching wall times of one expression."""

    __slots__ = ("_days_of_kind", "_expression", "_hour_from", "_minute_from")

    def __init__(self, expression: CronSim) -> None:
        self._expression = expression
        self._minute_from = _next_of(expression.minutes, 60)
        self._hour_from = _next_of(expression.hours, 24)
        self._days_of_kind: dict[tuple[int, int], int] = {}

    def is_empty(self) -> bool:
        """Whether no date ever matches. Any 28 years of one century hold every kind of month."""
        return not any(self._days(year, month) for year in range(2000, 2028) for month in range(1, 13))

    @property
    def shortest_step(self) -> timedelta:
        """The least time between two matches; of two days in a row it is supposed that both may match."""
        minutes = sorted(60 * hour + minute for hour in self._expression.hours for minute in self._expression.minutes)
        steps = [later - earlier for earlier, later in pairwise([*minutes, minutes[0] + 1440])]
        return timedelta(minutes=min(steps))

    def at_or_after(self, wall: datetime) -> datetime | None:
        """The first match at or after a whole minute; None when the calendar ends before there is one."""
        year, month, day = wall.year, wall.month, wall.day
        days = self._days(year, month) >> day
        if days & 1:
            hour = self._hour_from[wall.hour]
            if hour == wall.hour:
                minute = self._minute_from[wall.minute]
                if minute != _NONE:
                    return datetime(year, month, day, hour, minute)
                hour = self._hour_from[hour + 1]
            if hour != _NONE:
                return datetime(year, month, day, hour, self._minute_from[0])
            days -= 1
        while not days:
            day, month = 0, month + 1
            if month > 12:
                year, month = year + 1, 1
                if year > MAXYEAR:
                    return None
            days = self._days(year, month)
        day += (days & -days).bit_length() - 1
        return datetime(year, month, day, self._hour_from[0], self._minute_from[0])

    def _days(self, year: int, month: int) -> int:
        """The matching days of a month, as bits: bit 1 is its first day."""
        if month not in self._expression.months:
            return 0
        first = date(year, month, 1)
        length = _LENGTHS[month]
        if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
            length = 29
        kind = (length, first.weekday())
        days = self._days_of_kind.get(kind)
        if days is None:
            matches = self._expression.match_day
            days = sum(1 << day for day in range(1, length + 1) if matches(first.replace(day=day)))
            self._days_of_kind[kind] = days
        return days


def _next_of(values: Iterable[int], size: int) -> tuple[int, ...]:
    """For each number up to and including `size` the smallest value that is not less, or none."""
    ordered = sorted(values)
    return tuple(next((value for value in ordered if value >= start), _NONE) for start in range(size + 1))
