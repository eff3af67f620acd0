"""Durations as people write them: `90`, `"90s"`, `"10m"`, `"1h30m"`, a timedelta. Inside they are seconds."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from holdbeat.domain.errors import Invalid

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
