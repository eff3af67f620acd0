"""Occurrences: one row per due time of a Schedule.

Guards TIME-02: UNIQUE (schedule_id, due_at). A due time keeps its first verdict. The exception: if a clock ran ahead
and a due time was recorded without firing, it is judged again when its time really comes.

Guards GOV-09 and the overlap policies: "in flight" is an unfinished job, or cancelled work whose handler still runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdbeat.domain.bounds import check_instant
from holdbeat.domain.clock import iso
from holdbeat.domain.job import Hold
from holdbeat.domain.occurrence import Occurrence, OccurrenceStatus
from holdbeat.store.reads.columns import Table, row_writer
from holdbeat.store.reads.job_filter import choices, refuse_unknown
from holdbeat.store.reads.pagination import Cursors, Page, check_limit
from holdbeat.store.transaction import Transaction

_OCCURRENCES = Table("occurrences", Occurrence, {"late_s": lambda late_s: late_s or 0.0})
_row_of = row_writer(_OCCURRENCES.fields, (), {"status": lambda status: status.value})
_FINAL = (OccurrenceStatus.FIRED, OccurrenceStatus.MANUAL)

DueTime = tuple[str, datetime]
"""A schedule's id and one of its due times."""


def insert_occurrences(tx: Transaction, occurrences: Sequence[Occurrence]) -> None:
    tx.insert("occurrences", _OCCURRENCES.fields, [_row_of(occurrence) for occurrence in occurrences])


def taken(tx: Transaction, due_times: Sequence[DueTime]) -> set[DueTime]:
    """The due times, of these, that have a verdict already. The caller holds the locks of their schedules.

    What was recorded without a fire at a time that has not come yet, the clock ran ahead: it is forgotten here.
    """
    if not due_times:
        return set()
    rows = tx.rows(
        "SELECT o.schedule_id, o.due_at, o.status, o.recorded_at, o.id "
        "FROM rows(:due_times; schedule_id text, due_at time) AS w "
        "JOIN occurrences o ON o.schedule_id = w.schedule_id AND o.due_at = w.due_at",
        due_times=due_times,
    )
    standing: set[DueTime] = set()
    void = []
    for schedule_id, due_at, status, recorded_at, occurrence_id in rows:
        if status in _FINAL or tx.instant(recorded_at) <= tx.now:
            standing.add((schedule_id, tx.instant(due_at)))
        else:
            void.append(occurrence_id)
    if void:
        tx.execute("DELETE FROM occurrences WHERE id IN :ids", ids=void)
    return standing


def list_occurrences(
    tx: Transaction,
    schedule_id: str,
    filters: Mapping[str, Any] | None = None,
    *,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[Occurrence]:
    """The due times of one schedule, latest first."""
    chosen = refuse_unknown(filters or {}, ("status",))
    count = check_limit(limit)
    cursors = Cursors("occurrences", {**chosen, "schedule_id": schedule_id})
    where, params = ["schedule_id = :schedule_id"], {"schedule_id": schedule_id, "count": count + 1}
    if "status" in chosen:
        where.append("status IN :statuses")
        params["statuses"] = choices(chosen["status"], "status", OccurrenceStatus)
    last = cursors.read(cursor, str)
    if last is not None:
        where.append("due_at < :last")
        params["last"] = check_instant(last[0], "cursor")
    latest = _OCCURRENCES.all(tx, f"WHERE {' AND '.join(where)} ORDER BY due_at DESC LIMIT :count", **params)
    items = latest[:count]
    return Page(items, cursors.write(iso(items[-1].due_at)) if len(latest) > count else None)


@dataclass(slots=True)
class InFlight:
    """The unfinished jobs of one schedule, each list oldest first."""

    running: list[str] = field(default_factory=list)
    continuing: list[str] = field(default_factory=list)
    """Their chain has begun and goes on: when a wait of its handler is over, or as the retry of a run that failed."""
    queued: list[str] = field(default_factory=list)
    gated: list[str] = field(default_factory=list)
    """Made, but waiting until the others have ended."""
    lingering: bool = False
    """A job of it was cancelled, and its handler has not ended."""

    def __bool__(self) -> bool:
        return self.has_begun or self.has_queued

    @property
    def has_running(self) -> bool:
        return bool(self.running) or self.lingering

    @property
    def has_begun(self) -> bool:
        return self.has_running or bool(self.continuing)

    @property
    def has_queued(self) -> bool:
        return bool(self.queued or self.gated)

    @property
    def unfinished(self) -> list[str]:
        return [*self.running, *self.continuing, *self.queued, *self.gated]


def in_flight(tx: Transaction, schedule_ids: Sequence[str]) -> dict[str, InFlight]:
    """The unfinished work of each of the schedules, which the caller has locked."""
    flights = {schedule_id: InFlight() for schedule_id in schedule_ids}
    if not flights:
        return flights
    ids = sorted(flights)
    unfinished, leased = tx.all_rows(
        (
            "SELECT schedule_id, id, status, hold, retry_kind FROM jobs INDEXED BY jobs_in_flight "
            "WHERE schedule_id IN :ids AND schedule_id IS NOT NULL AND status IN ('QUEUED', 'RUNNING') ORDER BY id",
            {"ids": ids},
        ),
        (
            "SELECT j.schedule_id FROM leases l JOIN jobs j ON j.id = l.job_id "
            "WHERE j.schedule_id IN :ids AND j.status NOT IN ('QUEUED', 'RUNNING')",
            {"ids": ids},
        ),
    )
    for schedule_id, job_id, status, hold, retry_kind in unfinished:
        flight = flights[schedule_id]
        if status == "RUNNING":
            flight.running.append(job_id)
        elif retry_kind in ("continue", "auto"):
            flight.continuing.append(job_id)
        elif hold == Hold.OVERLAPPED:
            flight.gated.append(job_id)
        else:
            flight.queued.append(job_id)
    for (schedule_id,) in leased:
        flights[schedule_id].lingering = True
    return flights
