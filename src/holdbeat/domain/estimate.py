"""Estimated start: when a waiting Job's turn will probably come (API-06).

Guards honesty: what is not known is not guessed. One type ahead without a known duration makes the answer None.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Execution:
    """Something that holds a slot of the pool now."""

    type: str
    started_at: datetime
    weight: int = 1
    """The slots that it holds."""


class Ahead(NamedTuple):
    """Something that takes its slots before."""

    type: str
    weight: int = 1
    partition: str = ""


def estimated_start(
    now: datetime,
    *,
    slots: int | None,
    running: Iterable[Execution],
    ahead: Iterable[Ahead],
    mean_s: Mapping[str, float],
    not_before: datetime | None = None,
    weight: int = 1,
) -> datetime | None:
    """The instant at which as many slots as it weighs are free once all that are `ahead` have taken theirs, in order.

    Never before `not_before`. `slots` is None where nothing limits the pool. Work that needs more slots than there are
    never starts.
    """
    earliest = max(now, not_before) if not_before is not None else now
    if slots is None:
        return earliest
    if slots < max(1, weight):
        return None
    free_in_s: list[float] = []
    for execution in running:
        if execution.type not in mean_s:
            return None
        left_s = max(0.0, mean_s[execution.type] - (now - execution.started_at).total_seconds())
        free_in_s += [left_s] * execution.weight
    # More leases than slots: a limit was lowered, and the first to end frees nothing.
    free_in_s = sorted(free_in_s + [0.0] * (slots - len(free_in_s)))[-slots:]  # a sorted list is a heap
    for type_, needed, _ in ahead:
        if needed > slots:
            continue
        if type_ not in mean_s:
            return None
        start_s = max(heapq.heappop(free_in_s) for _ in range(needed))
        for _ in range(needed):
            heapq.heappush(free_in_s, start_s + mean_s[type_])
    return max(earliest, now + timedelta(seconds=round(heapq.nsmallest(weight, free_in_s)[-1], 3)))
