"""Counts of many rows, kept for a short while.

Guards the reader's patience, and the database's: to count a million jobs takes a second, and every open dashboard and
every scrape of the metrics would count them again. A count of few rows is always made anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdbeat.domain.clock import SystemClock

T = TypeVar("T")

MANY = 5_000
"""Counts up to here are exact at every look."""
KEPT_S_PER_ROW = 3e-5
LONGEST_KEPT_S = 10.0

monotonic = SystemClock().monotonic


class LongCounts:
    """What a process has counted in one store."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, float]] = {}

    def get(self, key: str, count: Callable[[], tuple[T, int]]) -> T:
        """What `count` says, which returns its answer and how many rows it counted; or what it said shortly before."""
        kept = self._kept.get(key)
        if kept is not None and monotonic() < kept[1]:
            answer: T = kept[0]
            return answer
        answer, rows = count()
        if rows > MANY:
            self._kept[key] = (answer, monotonic() + min(LONGEST_KEPT_S, rows * KEPT_S_PER_ROW))
        else:
            self._kept.pop(key, None)
        return answer
