"""What affinity did: who was passed by for it, and how often workers kept or changed it (LIM-11)."""

from __future__ import annotations

import json

from holdbeat.domain import events
from holdbeat.store.transaction import Transaction


def last_passed_by(tx: Transaction, job_id: str) -> events.Event | None:
    """The last time that another job went before this one because of what a worker had loaded."""
    row = tx.one(
        "SELECT at, worker_id, data FROM events WHERE job_id = :id AND name = :name ORDER BY id DESC LIMIT 1",
        id=job_id,
        name=events.JOB_PASSED_BY,
    )
    if row is None:
        return None
    return events.Event(events.JOB_PASSED_BY, tx.instant(row[0]), job_id, worker_id=row[1], data=json.loads(row[2]))


def affinity_counts(tx: Transaction) -> dict[str, tuple[int, int]]:
    """How often workers went on with an affinity, and changed it, by resource."""
    rows = tx.rows("SELECT resource, kept, switches FROM affinity_counts ORDER BY resource")
    return {row[0]: (int(row[1]), int(row[2])) for row in rows}
