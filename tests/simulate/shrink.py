"""The shortest plan that still breaks a promise: items are taken away for as long as the breach stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.simulate.plan import Item, Plan

RUNS_MAX = 150
TAIL_S = 900.0


def shrink(plan: Plan, breaks: Callable[[Plan], bool], runs_max: int = RUNS_MAX) -> Plan:
    """Delta debugging over the list of acts and faults. `breaks` runs a simulation."""
    runs = 0

    def still_breaks(items: Sequence[Item]) -> Plan | None:
        nonlocal runs
        if runs >= runs_max:
            return None
        runs += 1
        hours = min(plan.hours, ((items[-1].at if items else 0.0) + TAIL_S) / 3600)
        smaller = replace(plan, items=tuple(items), hours=hours)
        return smaller if breaks(smaller) else None

    best = plan
    parts = 2
    while len(best.items) >= 1 and runs < runs_max:
        size = max(1, len(best.items) // parts)
        pieces = [best.items[at : at + size] for at in range(0, len(best.items), size)]
        for number in range(len(pieces)):
            kept = [item for other, piece in enumerate(pieces) if other != number for item in piece]
            smaller = still_breaks(kept)
            if smaller is not None:
                best, parts = smaller, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(best.items), parts * 2)
    return best
