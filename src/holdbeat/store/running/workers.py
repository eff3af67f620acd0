"""Workers and their heartbeats.

Guards LEASE-02 and LEASE-04: one beat extends every lease that a worker still holds, and only those; from the answer
the worker learns which it has lost. Which it should let go it asks apart (`signals`), because that reads `jobs`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.params import dumps
from holdbeat.domain.worker import UNKNOWN_USAGE, Usage, Worker
from holdbeat.store.reads.workers import WORKERS
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat of a worker."""

    held: frozenset[str]
    """Leases that it still holds; whatever else it runs, it has lost."""
    renewed: frozenset[str]
    """Those that were extended: all but the ones that another transaction is about to end."""
    expires_at: datetime


def register_worker(tx: Transaction, worker: Worker, terms: LeaseTerms) -> Worker:
    """Introduces a worker to the store. It counts as alive until its beats stay away."""
    known = replace(worker, started_at=tx.now, heartbeat_at=tx.now, expires_at=terms.expiry(tx.now))
    tx.execute("DELETE FROM workers WHERE id = :id", id=worker.id)
    tx.insert(
        "workers",
        (*WORKERS.fields[:12], "memory_bytes", "machine", "process_started"),
        [
            (
                known.id, known.kind, known.host, known.pid, known.slots, known.http_slots, dumps(list(known.types)),
                None if known.resources is None else dumps(list(known.resources)), known.version, known.started_at,
                known.heartbeat_at, known.expires_at, known.memory_bytes, known.machine, known.process_started,
            )
        ],
    )  # fmt: skip
    tx.record(events.WORKER_STARTED, worker_id=worker.id, kind=worker.kind, host=worker.host, pid=worker.pid)
    tx.wake(Topic.WORKERS)
    return known


def beat(tx: Transaction, worker_id: str, terms: LeaseTerms, usage: Usage = UNKNOWN_USAGE) -> Beat:
    """Extends all leases of a worker, and its own row, in which its usage of the machine is noted.

    It touches no table but `workers` and `leases`, and waits for no row of them that another transaction holds: a lock
    on `jobs`, however long, costs no lease. Nor does a report of a run that waits for its table: it locks the lease FOR
    KEY SHARE, which keeps it from being deleted and lets it be renewed.
    """
    expires_at = terms.expiry(tx.now)
    # On SQLite the death of a worker is known at once, so there the length of a lease matters little.
    renewed, free, params = ":expires_at", "", dict[str, Any](expires_at=expires_at)
    if tx.dialect == "postgres":
        # Each lease as long as it was when it was taken: a run with a time limit may have a shorter one.
        renewed = "least(:expires_at, CAST(:now AS timestamptz) + greatest(expires_at - heartbeat_at, :shortest))"
        params["shortest"] = timedelta(seconds=terms.shortest_s)
        free = " AND id IN (SELECT id FROM leases WHERE worker_id = :id ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)"
    tx.execute(
        "UPDATE workers SET heartbeat_at = :now, expires_at = :expires_at, stopped_at = NULL, "
        "memory_bytes = :memory_bytes, cpu_share = :cpu_share WHERE id = :id",
        id=worker_id,
        memory_bytes=usage.memory_bytes,
        cpu_share=usage.cpu_share,
        now=tx.now,
        expires_at=expires_at,
    )
    extended, held = tx.all_rows(
        (
            f"UPDATE leases SET heartbeat_at = :now, expires_at = {renewed} WHERE worker_id = :id{free} RETURNING id",
            {"id": worker_id, "now": tx.now, **params},
        ),
        ("SELECT id FROM leases WHERE worker_id = :id", {"id": worker_id}),
    )
    return Beat(frozenset(row[0] for row in held), frozenset(row[0] for row in extended), expires_at)


def signals(tx: Transaction, worker_id: str) -> dict[str, str]:
    """Leases of this worker whose work should stop, with the reason: its job was cancelled, or its direct request
    was cancelled or expired."""
    rows = tx.rows(
        "SELECT l.id, j.cancel_reason FROM leases l JOIN jobs j ON j.id = l.job_id "
        "WHERE l.worker_id = :id AND j.status = 'CANCELLED' "
        "UNION ALL SELECT l.id, r.error FROM leases l JOIN direct_reservations r ON r.id = l.reservation_id "
        "WHERE l.worker_id = :id AND r.status <> 'ACTIVE'",
        id=worker_id,
    )
    return {lease_id: reason or "cancelled" for lease_id, reason in rows}


def begin_stopping(tx: Transaction, worker_id: str) -> None:
    """Notes that a worker claims nothing more; it goes on beating until its work has ended."""
    changed = tx.rows(
        "UPDATE workers SET stopping_at = :now WHERE id = :id AND stopping_at IS NULL AND stopped_at IS NULL "
        "RETURNING id",
        id=worker_id,
        now=tx.now,
    )
    if changed:
        tx.wake(Topic.WORKERS)


def stop_worker(tx: Transaction, worker_id: str, reason: str | None = None) -> bool:
    """Notes that a worker has ended; False if that was noted before. Its leases, if it left any, stay for recovery."""
    changed = tx.rows(
        "UPDATE workers SET stopped_at = :now WHERE id = :id AND stopped_at IS NULL RETURNING id",
        id=worker_id,
        now=tx.now,
    )
    if changed:
        tx.record(events.WORKER_STOPPED, worker_id=worker_id, reason=reason)
        tx.wake(Topic.WORKERS)
    return bool(changed)
