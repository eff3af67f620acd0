"""Who holds the slots of a pool: jobs, direct requests, and cancelled work that still runs.

Guards CAP-01: the leases are the only truth about slots, so nothing else is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdbeat.domain.job import Job, JobStatus
from holdbeat.domain.reservation import Reservation, ReservationStatus
from holdbeat.store.reads.estimates import pool_condition
from holdbeat.store.transaction import Transaction

HOLDERS_MAX = 100
"""So many holders are listed one by one."""

_HOLDERS = (
    "SELECT l.job_id, l.reservation_id, l.type, l.worker_id, l.acquired_at, j.status, r.status, l.slot, r.client "
    "FROM (SELECT * FROM leases WHERE {condition} ORDER BY acquired_at, id LIMIT :limit) AS l "
    "LEFT JOIN jobs j ON j.id = l.job_id LEFT JOIN direct_reservations r ON r.id = l.reservation_id "
    "ORDER BY l.acquired_at, l.id"
)


@dataclass(frozen=True, slots=True)
class Holder:
    """One lease, as somebody who waits for it sees it."""

    job_id: str | None
    reservation_id: str | None
    type: str
    worker_id: str | None
    """None for a program that borrowed the slot."""
    since: datetime
    is_cancelled: bool
    """It was cancelled, or its client is gone, but its handler has not ended."""
    slot: int | None
    client: str | None


def holders_of_pool(tx: Transaction, work: Job | Reservation) -> list[Holder]:
    """Everyone who holds a slot of the pool that `work` draws from, the longest holder first."""
    condition, params = pool_condition(tx, work)
    return _holders(tx, tx.rows(_HOLDERS.format(condition=condition), limit=HOLDERS_MAX, **params))


def holders_on_workers(tx: Transaction, worker_ids: Sequence[str]) -> list[Holder]:
    """Everyone who holds a slot of these workers."""
    if not worker_ids:
        return []
    # Workers have few slots, and whoever asks about them wants all.
    rows = tx.rows(_HOLDERS.format(condition="worker_id IN :ids"), ids=list(worker_ids), limit=100_000)
    return _holders(tx, rows)


def _holders(tx: Transaction, rows: Sequence[tuple[Any, ...]]) -> list[Holder]:
    return [
        Holder(
            job_id=row[0],
            reservation_id=row[1],
            type=row[2],
            worker_id=row[3],
            since=tx.instant(row[4]),
            is_cancelled=row[5] == JobStatus.CANCELLED or row[6] not in (None, ReservationStatus.ACTIVE),
            slot=row[7],
            client=row[8],
        )
        for row in rows
    ]
