"""Estimated start: when a waiting Job's turn will probably come (API-06).

Guards honesty: what is not known is not guessed. One type ahead without a known duration makes the answer None.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Execution:
    """Something that holds a slot of the pool now."""

    type: str
    started_at: datetime


def estimated_start(
    now: datetime,
    *,
    slots: int | None,
    running: Iterable[Execution],
    ahead: Iterable[str],
    mean_s: Mapping[str, float],
    not_before: datetime | None = None,
) -> datetime | None:
    """The instant at which a slot is free once all types `ahead` have taken theirs, in order.

    Never before `not_before`. `slots` is None where nothing limits the pool.
    """
    earliest = max(now, not_before) if not_before is not None else now
    if slots is None:
        return earliest
    if slots <= 0:
        return None
    free_in_s: list[float] = []
    for execution in running:
        if execution.type not in mean_s:
            return None
        free_in_s.append(max(0.0, mean_s[execution.type] - (now - execution.started_at).total_seconds()))
    free_in_s += [0.0] * (slots - len(free_in_s))
    heapq.heapify(free_in_s)
    while len(free_in_s) > slots:
        # More leases than slots: a limit was lowered, and the first to end frees nothing.
        heapq.heappop(free_in_s)
    for type_ in ahead:
        if type_ not in mean_s:
            return None
        heapq.heapreplace(free_in_s, free_in_s[0] + mean_s[type_])
    return max(earliest, now + timedelta(seconds=round(free_in_s[0], 3)))
