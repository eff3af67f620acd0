"""The holders of slots: jobs, direct requests, and cancelled work that still runs.

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


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """One lease: who holds a slot, and how far it is."""

    job_id: str | None
    """None for a direct request."""
    type: str
    resource: str
    worker_id: str | None
    """None for a program that borrowed the slot."""
    slot: int | None
    since: datetime
    fraction: float | None
    message: str | None
    is_cancelled: bool
    """Its job was cancelled, or its client is gone, but the handler has not ended."""
    title: str
    """The title of its job or reservation."""
    reservation_id: str | None = None
    client: str | None = None
    weight: int = 1
    """The slots of its resource that it holds."""


def slot_holders(tx: Transaction, limit: int = 200) -> list[SlotHolder]:
    """The live leases, by resource, the longest holder first."""
    return _holders(tx, "1 = 1", limit, ("resource", "acquired_at", "id"))


def holders_of_pool(tx: Transaction, work: Job | Reservation) -> list[SlotHolder]:
    """The holders of slots of the pool that `work` draws from, the longest holder first."""
    condition, params = pool_condition(tx, work)
    return _holders(tx, condition, HOLDERS_MAX, **params)


def holders_on_workers(tx: Transaction, worker_ids: Sequence[str]) -> list[SlotHolder]:
    """All holders of slots of these workers, which have few."""
    return _holders(tx, "worker_id IN :ids", 100_000, ids=list(worker_ids)) if worker_ids else []


def _holders(
    tx: Transaction, condition: str, limit: int, order: Sequence[str] = ("acquired_at", "id"), **params: Any
) -> list[SlotHolder]:
    rows = tx.rows(
        "SELECT l.job_id, l.type, l.resource, l.worker_id, l.slot, l.acquired_at, p.fraction, p.message, j.status, "
        "d.status, coalesce(j.title, d.title), l.reservation_id, d.client, l.weight "
        f"FROM (SELECT * FROM leases WHERE {condition} ORDER BY {', '.join(order)} LIMIT :limit) AS l "
        "LEFT JOIN progress p ON p.run_id = l.id LEFT JOIN jobs j ON j.id = l.job_id "
        "LEFT JOIN direct_reservations d ON d.id = l.reservation_id "
        f"ORDER BY {', '.join(f'l.{name}' for name in order)}",
        limit=limit,
        **params,
    )
    return [
        SlotHolder(
            row[0], row[1], row[2], row[3], row[4], tx.instant(row[5]), row[6], row[7],
            row[8] == JobStatus.CANCELLED or row[9] not in (None, ReservationStatus.ACTIVE), row[10] or row[1],
            row[11], row[12], row[13],
        )
        for row in rows
    ]  # fmt: skip


def leases_held(tx: Transaction) -> dict[tuple[str | None, str], int]:
    """How many leases each worker (None for slots that are borrowed) has on each resource."""
    rows = tx.rows("SELECT worker_id, resource, count(*) FROM leases GROUP BY worker_id, resource")
    return {(worker_id, resource): int(count) for worker_id, resource, count in rows}
