"""Reads the five fields of a cron expression into the wall times that it names, and refuses everything else in one way.

A `Grid` finds the first matching minute in a number of steps that the calendar bounds, not the expression: a month is
one lookup. cronsim decides which days match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from itertools import pairwise

from cronsim import CronSim, CronSimError

from holdbeat.domain.errors import Invalid

# ruff: noqa: DTZ001 -- a wall time has no zone


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


MAX_LENGTH = 256
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_FIELDS = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31 or L for the last day",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT, 5L for the last Friday, 1#2 for the second Monday",
}
_LAST = {"minute": 59, "hour": 23, "day-of-month": 31, "month": 12, "day-of-week": 7}
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_NUMBERS = {name: number for number, name in enumerate(_DAYS)} | {
    name: number for number, name in enumerate(_MONTHS, 1)
}

_VALUE = r"(?:[0-9]+|[A-Z]{3})"
_TERM = rf"(?:\*|{_VALUE}-{_VALUE})(?:/[0-9]+)?|{_VALUE}"
_TERMS = {
    "day-of-month": re.compile(rf"{_TERM}|LW?"),
    "day-of-week": re.compile(rf"{_TERM}|[0-7]L|{_VALUE}#[1-5]"),
}
_PLAIN_TERM = re.compile(_TERM)
_STEP_WITHOUT_RANGE = re.compile(rf"({_VALUE})/([0-9]+)")
_RANGE = re.compile(rf"({_VALUE})-({_VALUE})(?:/[0-9]+)?")
_STEPPED_RANGE = re.compile(rf"({_VALUE})-({_VALUE})/([0-9]+)")

# cronsim wants a moment to start from; only its parsed fields are used, so any will do.
_ANY_MOMENT = datetime(2000, 1, 1, tzinfo=UTC)


def text_of(value: object) -> str:
    """Returns the value if it is a text of a bearable length; refuses everything else unread."""
    if not isinstance(value, str):
        raise invalid_cron("A cron expression is a text of five fields, such as '30 9 * * 1-5'.")
    if len(value) > MAX_LENGTH:
        raise invalid_cron(f"A cron expression may have at most {MAX_LENGTH} characters; this one has {len(value)}.")
    return value


def read(text: str) -> tuple[CronSim, Grid]:
    """The parsed expression and the wall times it names, of which there is at least one."""
    fields = _fields(text)
    for name, field in zip(_FIELDS, fields, strict=True):
        _check(name, field)
    try:
        expression = CronSim(" ".join(_without_idle_steps(field) for field in fields), _ANY_MOMENT)
    except CronSimError as error:
        raise _refusal_of(str(error), fields) from None
    grid = Grid(expression)
    if grid.is_empty():
        raise _never(fields)
    return expression, grid


def simplest(expression: CronSim) -> CronSim:
    """The same times in plainer words: a step beyond the end names one value, and all days are every day."""
    _, *fields = expression.parts
    for index, values in ((0, expression.minutes), (1, expression.hours), (3, expression.months)):
        if len(values) == 1:
            fields[index] = str(min(values))
    weekdays = {day % 7 for day in expression.weekdays if isinstance(day, int)}
    if not expression.day_and:
        # Without a star one of the two day fields is enough, so one that names all days makes the other idle.
        if set(range(1, 32)) <= expression.days or len(weekdays) == 7:
            fields[2] = fields[4] = "*"
    elif fields[2] == "*" and len(weekdays) == 1 and all(isinstance(day, int) for day in expression.weekdays):
        fields[4] = str(min(weekdays))
    elif fields[4] == "*" and len(expression.days) == 1 and min(expression.days) > 0:
        fields[2] = str(min(expression.days))
    return CronSim(" ".join(fields), _ANY_MOMENT)


def _fields(text: str) -> list[str]:
    # Blanks are what cron takes for blanks. str.split() would also take line ends and exotic spaces.
    fields = [field for field in re.split("[ \t]", text) if field]
    if fields and fields[0].startswith("@"):
        if fields[0] == "@every":
            raise invalid_cron("'@every' is not part of cron: for every so many seconds give interval_s instead.")
        if fields[0] not in NICKNAMES or len(fields) > 1:
            nickname = _shown(" ".join(fields))
            raise invalid_cron(f"{nickname} is not a known nickname; use one of {', '.join(NICKNAMES)}, alone.")
        fields = NICKNAMES[fields[0]].split()
    if len(fields) != len(_FIELDS):
        raise invalid_cron(
            f"A cron expression has five fields ({', '.join(_FIELDS)}), separated by spaces; "
            f"this one has {len(fields)}{_why_so_many(fields)}."
        )
    # Before upper-casing: a dotless i or a long s would turn into the letters of FRI and SUN.
    return [field.upper() if field.isascii() else field for field in fields]


def _why_so_many(fields: list[str]) -> str:
    if any(field.startswith(",") or field.endswith(",") for field in fields):
        return ": a list has no spaces in it"
    return ": it has neither seconds nor years" if len(fields) in (6, 7) else ""


def _check(name: str, field: str) -> None:
    term_of = _TERMS.get(name, _PLAIN_TERM)
    for term in field.split(","):
        if term_of.fullmatch(term):
            _check_range(name, field, term)
            continue
        if step := _STEP_WITHOUT_RANGE.fullmatch(term):
            raise _bad(name, field, f"a step needs a range, as in {step[1]}-{_LAST[name]}/{step[2]}")
        raise _bad(name, field)


def _check_range(name: str, field: str, term: str) -> None:
    match = _RANGE.fullmatch(term)
    if match is None:
        return
    first, last = _number(match[1]), _number(match[2])
    has_names = name in ("month", "day-of-week") or (match[1] + match[2]).isdigit()
    if has_names and -1 < last < first:
        sunday = ", and a week that ends with Sunday ends with 7" if name == "day-of-week" else ""
        raise _bad(name, field, f"the range {_shown(match[0])} runs backwards; write it as two ranges{sunday}")


def _without_idle_steps(field: str) -> str:
    """Rewrites `5-5/15` as `5-5`: cronsim reads a range of one value with a step as an open range."""
    return ",".join(_without_idle_step(term) for term in field.split(","))


def _without_idle_step(term: str) -> str:
    match = _STEPPED_RANGE.fullmatch(term)
    if match and _number(match[1]) == _number(match[2]) and int(match[3]) > 0:
        return f"{match[1]}-{match[2]}"
    return term


def _number(value: str) -> int:
    return int(value) if value.isdigit() else _NUMBERS.get(value, -1)


def _refusal_of(complaint: str, fields: list[str]) -> Invalid:
    named = dict(zip(_FIELDS, fields, strict=True))
    name = complaint.removeprefix("Bad ")
    if name not in named:
        return invalid_cron(f"This is not a cron expression: {complaint}.")
    if name == "day-of-month" and _is_some_day(named[name]):
        return _never(fields)
    return _bad(name, named[name])


def _is_some_day(field: str) -> bool:
    """cronsim blames the day alike when it is no day at all and when none of the months has it."""
    try:
        CronSim(f"0 0 {field} * *", _ANY_MOMENT)
    except CronSimError:
        return False
    return True


def _bad(name: str, field: str, why: str | None = None) -> Invalid:
    advice = why or f"use {_FIELDS[name]}, or *, with ranges (a-b), lists (a,b) and steps (*/n, a-b/n)"
    return invalid_cron(f"The {name} field {_shown(field)} of the cron expression is not valid: {advice}.")


def _never(fields: list[str]) -> Invalid:
    return invalid_cron(
        f"This cron expression would never fire: no day fits day-of-month {_shown(fields[2])}, "
        f"month {_shown(fields[3])} and day-of-week {_shown(fields[4])} together."
    )


def invalid_cron(sentence: str) -> Invalid:
    """The one refusal of a cron expression."""
    return Invalid(sentence, code="invalid_cron", field="cron")


def _shown(text: str) -> str:
    """The text as an error may repeat it: short, and nothing but printable ASCII."""
    return ascii(text if len(text) <= 40 else text[:40] + "...")
