"""Who holds the slots of a pool: jobs, direct requests, and cancelled work that still runs.

Guards CAP-01 in words: the leases are the only truth about slots, so the explanation reads nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdbeat.domain.clock import iso
from holdbeat.domain.job import Job, JobStatus
from holdbeat.domain.limit import EACH
from holdbeat.domain.reservation import Reservation, ReservationStatus
from holdbeat.observe.wording import span
from holdbeat.store.reads.estimates import fullest_pool, pool_condition
from holdbeat.store.transaction import Transaction

HOLDERS_MAX = 100
"""So many holders are listed one by one."""

_HOLDERS = (
    "SELECT l.job_id, l.reservation_id, l.type, l.worker_id, l.acquired_at, j.status, r.status, l.slot "
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
    worker_id: str
    since: datetime
    is_cancelled: bool
    """It was cancelled, or its client is gone, but its handler has not ended."""
    slot: int

    def words(self, now: datetime) -> str:
        what = f"job {self.job_id}" if self.job_id else f"direct request {self.reservation_id}"
        how = ", cancelled but still running" if self.is_cancelled else ""
        return f"{what} ({self.type} on {self.worker_id} for {span((now - self.since).total_seconds())}{how})"

    def as_dict(self) -> dict[str, Any]:
        return {
            "job_id": self.job_id,
            "reservation_id": self.reservation_id,
            "type": self.type,
            "worker_id": self.worker_id,
            "since": iso(self.since),
            "cancelled": self.is_cancelled,
        }


def holders_of_pool(tx: Transaction, work: Job | Reservation) -> list[Holder]:
    """Everyone who holds a slot of the pool that `work` draws from, the longest holder first."""
    condition, params = pool_condition(tx, work)
    return _holders(tx, tx.rows(_HOLDERS.format(condition=condition), limit=HOLDERS_MAX, **params))


def holders_on_workers(tx: Transaction, worker_ids: Sequence[str]) -> list[Holder]:
    """Everyone who holds a slot of these workers."""
    if not worker_ids:
        return []
    # Workers have few slots, and who is asked about them wants all.
    found = tx.rows(_HOLDERS.format(condition="worker_id IN :ids"), ids=list(worker_ids), limit=100_000)
    return _holders(tx, found)


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
        )
        for row in rows
    ]


def pool_words(tx: Transaction, work: Job | Reservation) -> str:
    """The pool by the name that the operator gave it."""
    pool = fullest_pool(tx, work)
    if pool is None or pool.limit.resource == EACH:
        return f"the resource {work.resource}"
    return f"the job type {work.type}" if pool.limit.type == EACH else pool.limit.words()


def slots_of_pool(tx: Transaction, work: Job | Reservation) -> int | None:
    pool = fullest_pool(tx, work)
    return None if pool is None else pool.limit.slots
