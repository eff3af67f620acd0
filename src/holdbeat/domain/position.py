"""Positions: integers with gaps, so that moving one job changes one row.

Guards DEC-005: order is total and stable; a used-up gap is answered by renumbering, never by a tie.
"""

from __future__ import annotations

from collections.abc import Sequence

GAP = 100
POSITION_MAX = 2**62
"""Far below the 64-bit limit of both stores, so that a gap above it can never overflow."""


def between(before: int | None, after: int | None) -> int | None:
    """A position strictly between two neighbours, None at the top or the bottom; None if the gap is used up."""
    if before is None and after is None:
        return GAP
    if before is None:
        assert after is not None
        top = after - GAP
        return top if top > -POSITION_MAX else None
    if after is None:
        bottom = before + GAP
        return bottom if bottom < POSITION_MAX else None
    middle = (before + after) // 2
    return middle if before < middle < after else None


def renumbered(count: int) -> list[int]:
    """Fresh positions for `count` jobs in their present order."""
    return [GAP * (index + 1) for index in range(count)]


def permuted(places: Sequence[int], order: Sequence[str], present: Sequence[str]) -> dict[str, int]:
    """New positions for jobs that permute among their own places; only those that really move.

    `places` are the positions of `present` in ascending order; `order` lists the same ids as they shall stand.
    """
    new_places = dict(zip(present, places, strict=True))
    ascending = sorted(places)
    return {job_id: place for job_id, place in zip(order, ascending, strict=True) if new_places[job_id] != place}
