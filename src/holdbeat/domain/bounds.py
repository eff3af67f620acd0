"""Checks of single values that come from outside: each passes a value of the right form on or refuses it.

Guards against what JSON lets through and arithmetic does not survive: booleans as numbers, NaN, infinity, instants
without end, invisible characters.
"""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Any, TypeVar

from holdbeat.domain.clock import from_iso, to_millis
from holdbeat.domain.errors import Invalid
from holdbeat.schemas.field_bounds import LONGEST_NAME, YEAR_S

Choice = TypeVar("Choice", bound=StrEnum)
LAST_INSTANT = datetime(9000, 1, 1, tzinfo=UTC)
"""Planned instants end here, so that adding an interval never leaves the calendar."""
FIRST_INSTANT = datetime(1970, 1, 1, tzinfo=UTC)

_ENDS_A_LINE = frozenset(("Cc", "Cs", "Zl", "Zp"))
"""Categories of characters: controls, halves of surrogate pairs, separators of lines and paragraphs."""
_TURNS_TEXT = frozenset(("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"))
"""Classes of characters that change the direction of the text after them, that of other names included."""


def check_number(value: Any, field: str, low: float, high: float) -> float:
    """A finite number between two bounds, both allowed."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise Invalid(f"{field} must be a number from {low:.15g} to {high:.15g}.", code="out_of_range", field=field)
    return value if isinstance(value, int) else float(value)


def check_flag(value: Any, field: str, *, code: str = "invalid_flag") -> bool:
    """A truth value, and nothing that only counts as one."""
    if not isinstance(value, bool):
        raise Invalid(f"{field} must be true or false.", code=code, field=field)
    return value


def check_choice(kind: type[Choice], value: Any, field: str, *, code: str = "unknown_choice") -> Choice:
    """A member of a closed set, or a refusal that names them all."""
    try:
        return kind(value)
    except ValueError:
        raise Invalid(f"{field} must be one of {', '.join(kind)}.", code=code, field=field) from None


def check_whole_number(value: Any, field: str, low: int, high: int) -> int:
    """An integer between two bounds, both allowed."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Invalid(f"{field} must be a whole number from {low} to {high}.", code="out_of_range", field=field)
    return value


def check_duration_s(value: Any, field: str, low: float, high: float = YEAR_S) -> float:
    """A duration in seconds; NaN and infinity lie outside all bounds."""
    if isinstance(value, float) and not math.isfinite(value):
        raise Invalid(f"{field} must be a finite number of seconds.", code="out_of_range", field=field)
    return check_number(value, field, low, high)


def check_instant(value: Any, field: str, zone: tzinfo = UTC) -> datetime:
    """An instant in UTC with milliseconds, read from a datetime or its ISO-8601 form.

    A text without an offset is wall time in `zone`: the first pass where the clocks show it twice, moved by the length
    of the gap where they never show it.
    """
    if isinstance(value, str):
        try:
            value = from_iso(value, zone)
        except (ValueError, OverflowError):
            value = None
    if isinstance(value, datetime) and value.tzinfo is None:
        raise Invalid(
            f"{field} has no time zone, so it is no instant. Give it one: value.replace(tzinfo=UTC) if it is in UTC, "
            "value.astimezone() if it is in local time.",
            code="invalid_instant",
            field=field,
        )
    if not isinstance(value, datetime):
        raise Invalid(
            f"{field} must be an instant such as 2026-01-31T09:30:00.000Z.",
            code="invalid_instant",
            field=field,
        )
    if not FIRST_INSTANT <= value < LAST_INSTANT:
        raise Invalid(f"{field} must lie between the years 1970 and 9000.", code="invalid_instant", field=field)
    return to_millis(value)


def check_line(value: Any, field: str, longest: int = LONGEST_NAME, shortest: int = 1) -> str:
    """One line of visible text, such as a name: nothing that ends the line or turns the text around it."""
    if not isinstance(value, str) or not shortest <= len(value) <= longest:
        raise Invalid(
            f"{field} must be a text of {shortest} to {longest} characters.", code="invalid_text", field=field
        )
    if not value.isprintable() and any(
        unicodedata.category(sign) in _ENDS_A_LINE or unicodedata.bidirectional(sign) in _TURNS_TEXT for sign in value
    ):
        raise Invalid(
            f"{field} must not contain control characters, also not those that turn the direction of text; write it "
            "on one line.",
            code="invalid_text",
            field=field,
        )
    if shortest and not value.strip():
        raise Invalid(f"{field} must contain more than blanks.", code="invalid_text", field=field)
    return value


def check_printable_name(name: str, what: str) -> str:
    """The name of a step or of a signal."""
    is_printable = isinstance(name, str) and name.isprintable() and name == name.strip()
    if not is_printable or not 1 <= len(name) <= LONGEST_NAME:
        raise Invalid(
            f"A {what}'s name has 1 to {LONGEST_NAME} printable characters and no blanks around it.",
            code=f"invalid_{what}_name",
            field="name",
        )
    return name


Duration = float | str | timedelta
"""What may stand where a duration is asked for."""

_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|[smhdw])")
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")


def duration_s(value: Duration, *, field: str = "duration") -> float:
    """Seconds; refuses what is negative, endless or not understood."""
    amount: float | None = None
    if isinstance(value, timedelta):
        amount = value.total_seconds()
    elif isinstance(value, bool):
        amount = None
    elif isinstance(value, int | float):
        amount = float(value)
    elif isinstance(value, str) and len(value) <= 100:
        text = value.replace(" ", "").lower()
        parts = _PART.findall(text)
        if _NUMBER.fullmatch(text):
            amount = float(text)
        elif parts and "".join(number + unit for number, unit in parts) == text:
            amount = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if amount is None or not math.isfinite(amount) or amount < 0:
        raise Invalid(
            f"{field} must be seconds, a timedelta, or text such as '90s', '10m' or '1h30m'.",
            code="invalid_duration",
            field=field,
        )
    return amount
