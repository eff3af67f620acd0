"""Preemption by consent: which running work is interrupted for work that was submitted to preempt.

Guards LIM-13: only work that agreed to it, only for work of a higher priority that asked for it, only as much as is
needed, and nothing if that would not be enough. What has run for the shortest time loses least.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from holdbeat.domain.capacity import Place


@dataclass(frozen=True, slots=True)
class Interruptible:
    """A run whose type agreed to be interrupted."""

    lease_id: str
    job_id: str
    priority: int
    acquired_at: datetime
    held: Mapping[Place, int]
    """The slots that it would give back."""


def to_interrupt(
    lacking: Mapping[Place, int], priority: int | None, running: Iterable[Interruptible]
) -> list[Interruptible]:
    """The runs to interrupt so that this many slots become free; none if not all can.

    `priority` is that of the work that preempts; None for a direct request, which goes before every job.
    """
    missing = {place: count for place, count in lacking.items() if count > 0}
    chosen = []
    order = sorted(running, key=lambda run: (run.priority, -run.acquired_at.timestamp(), run.lease_id))
    for run in order:
        if not missing:
            break
        is_lower = priority is None or run.priority < priority
        if is_lower and any(place in missing for place in run.held):
            chosen.append(run)
            missing = {place: count - run.held.get(place, 0) for place, count in missing.items()}
            missing = {place: count for place, count in missing.items() if count > 0}
    return [] if missing else chosen
