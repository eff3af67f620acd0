"""What of a Schedule is unfinished just now: the jobs themselves say it, and nothing else is kept about it.

Guards GOV-09 and the overlap policies: "in flight" is an unfinished job, or cancelled work whose handler still runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdbeat.domain.job import Hold
from holdbeat.store.transaction import Transaction


@dataclass(slots=True)
class InFlight:
    """The unfinished jobs of one schedule, each list oldest first."""

    running: list[str] = field(default_factory=list)
    queued: list[str] = field(default_factory=list)
    gated: list[str] = field(default_factory=list)
    """Made, but waiting until the others have ended."""
    lingering: bool = False
    """A job of it was cancelled, and its handler has not ended."""

    def __bool__(self) -> bool:
        return bool(self.running or self.queued or self.gated or self.lingering)

    @property
    def has_running(self) -> bool:
        return bool(self.running) or self.lingering

    @property
    def has_queued(self) -> bool:
        return bool(self.queued or self.gated)

    @property
    def unfinished(self) -> list[str]:
        return [*self.running, *self.queued, *self.gated]


def in_flight(tx: Transaction, schedule_ids: Sequence[str]) -> dict[str, InFlight]:
    """For each of the schedules, which the caller has locked, what is unfinished."""
    flights = {schedule_id: InFlight() for schedule_id in schedule_ids}
    if not flights:
        return flights
    ids = sorted(flights)
    unfinished, leased = tx.all_rows(
        (
            "SELECT schedule_id, id, status, hold FROM jobs INDEXED BY jobs_in_flight "
            "WHERE schedule_id IN :ids AND schedule_id IS NOT NULL AND status IN ('QUEUED', 'RUNNING') ORDER BY id",
            {"ids": ids},
        ),
        (
            "SELECT j.schedule_id FROM leases l JOIN jobs j ON j.id = l.job_id "
            "WHERE j.schedule_id IN :ids AND j.status NOT IN ('QUEUED', 'RUNNING')",
            {"ids": ids},
        ),
    )
    for schedule_id, job_id, status, hold in unfinished:
        flight = flights[schedule_id]
        if status == "RUNNING":
            flight.running.append(job_id)
        elif hold == Hold.OVERLAPPED:
            flight.gated.append(job_id)
        else:
            flight.queued.append(job_id)
    for (schedule_id,) in leased:
        flights[schedule_id].lingering = True
    return flights
