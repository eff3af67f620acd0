"""Rates: how often work may start, exactly, from one number for each limit and partition.

Guards LIM-05: that number is the instant at which the next start would be due if all were evenly spaced. It changes
only in the claim that starts something, so a restart loses nothing, and a failed claim uses up nothing. Instants are
seconds since 1970 on the clock of the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import Any

_ROUNDING_S, _ROUNDING = 1e-6, 5e-4
"""What sums of floating-point numbers may be off: seconds since 1970, but at most a fraction of one interval."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` starts in `per_s` seconds, evenly spaced; `burst` further ones may come early."""

    count: int
    per_s: float
    burst: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {"count": self.count, "per_s": self.per_s, "burst": self.burst}


def interval_s(rate: Rate) -> float:
    """The time from one start to the next, if they are evenly spaced."""
    return rate.per_s / rate.count


def permitted(rate: Rate, due: float | None, now: float) -> int:
    """How many may start now. `due` is the kept instant; None if nothing has started yet."""
    step = interval_s(rate)
    return max(0, floor((now - _from(rate, due, now) + min(_ROUNDING_S, _ROUNDING * step)) / step + rate.burst) + 1)


def next_start(rate: Rate, due: float | None, now: float) -> float:
    """When the next may start: now, or the first instant at which the rate permits it."""
    return max(now, _from(rate, due, now) - rate.burst * interval_s(rate))


def due_after(rate: Rate, due: float | None, now: float, count: int) -> float:
    """The instant to keep after `count` have started now."""
    return _from(rate, due, now) + count * interval_s(rate)


def _from(rate: Rate, due: float | None, now: float) -> float:
    """Where counting begins: who did not start anything has saved up only the burst.

    A kept instant further ahead than any start could have put it comes from a clock that was set back, or from a rate
    that was slower. Rounding alone does not bring it back.
    """
    if due is None:
        return now
    step = interval_s(rate)
    furthest = now + (rate.burst + 1) * step
    return max(now, furthest if due > furthest + step / 1000 else due)
