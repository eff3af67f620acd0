"""Occurrences: one row per due time of a Schedule.

Guards TIME-02: UNIQUE (schedule_id, due_at). A due time that has a verdict keeps it, whoever comes later; only what a
clock that ran ahead passed over without firing is judged again when its time really comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdbeat.domain.bounds import check_instant
from holdbeat.domain.clock import iso
from holdbeat.domain.occurrence import Occurrence, OccurrenceStatus
from holdbeat.store.reads.job_filter import choices, refuse_unknown
from holdbeat.store.reads.pagination import Cursors, Page, check_limit
from holdbeat.store.transaction import Row, Transaction

OCCURRENCE_FIELDS = (
    "id", "schedule_id", "due_at", "status", "recorded_at", "job_id", "reason", "count", "late_s",
)  # fmt: skip
OCCURRENCE = ", ".join(OCCURRENCE_FIELDS)
_FINAL = (OccurrenceStatus.FIRED, OccurrenceStatus.MANUAL)

DueTime = tuple[str, datetime]
"""A schedule's id and one of its due times."""


def occurrence_of(tx: Transaction, row: Row) -> Occurrence:
    """A row of the OCCURRENCE columns as an Occurrence."""
    return Occurrence(
        row[0],
        row[1],
        tx.instant(row[2]),
        OccurrenceStatus(row[3]),
        tx.instant(row[4]),
        row[5],
        row[6],
        row[7],
        row[8] or 0.0,
    )


def insert_occurrences(tx: Transaction, occurrences: Sequence[Occurrence]) -> None:
    tx.insert(
        "occurrences",
        OCCURRENCE_FIELDS,
        [
            (o.id, o.schedule_id, o.due_at, o.status.value, o.recorded_at, o.job_id, o.reason, o.count, o.late_s)
            for o in occurrences
        ],
    )


def taken(tx: Transaction, due_times: Sequence[DueTime]) -> set[DueTime]:
    """Which of these due times have a verdict that stands. The caller holds the locks of their schedules.

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
    rows = tx.rows(
        f"SELECT {OCCURRENCE} FROM occurrences WHERE {' AND '.join(where)} ORDER BY due_at DESC LIMIT :count", **params
    )
    items = [occurrence_of(tx, row) for row in rows[:count]]
    return Page(items, cursors.write(iso(items[-1].due_at)) if len(rows) > count else None)
