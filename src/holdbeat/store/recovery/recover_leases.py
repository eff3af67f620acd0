"""Repairs of leases and reservations whose holder or owner is gone.

Guards REC-01 and DIR-02: a lease is taken away only if nobody has renewed it since it was found silent, and then its
run ends as every run does; a reservation that nobody waits for lets the queue go on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.clock import iso
from holdbeat.domain.job import JobStatus
from holdbeat.domain.lease import Lease, LeaseTerms
from holdbeat.domain.reservation import ReservationKind, ReservationOutcome
from holdbeat.domain.run import ErrorKind
from holdbeat.store.jobs.end_runs import lock_groups_and_schedules
from holdbeat.store.reads.jobs import locked_job
from holdbeat.store.reads.rows import LEASES
from holdbeat.store.recovery.recover_jobs import close_execution
from holdbeat.store.running.reservations import end_active
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction


def recover_lease(tx: Transaction, lease_id: str, kind: ErrorKind, heartbeat_at: datetime, terms: LeaseTerms) -> bool:
    """Takes a lease away from a holder that is dead (`crash`) or silent (`lost`), and ends what it held.

    Does nothing if the lease is gone, or was renewed after `heartbeat_at`, when it was found; or if it is to be `lost`
    but is not late any more, because the clock that said so has been set right.
    """
    ids = tx.one(
        "SELECT j.group_id, j.schedule_id FROM leases l JOIN jobs j ON j.id = l.job_id WHERE l.id = :id", id=lease_id
    )
    if ids is not None:
        lock_groups_and_schedules(tx, [ids[0]], [ids[1]])
    lease = LEASES.first(tx, "WHERE id = :id FOR UPDATE", id=lease_id)
    if lease is None or lease.heartbeat_at != heartbeat_at:
        return False
    if kind is ErrorKind.LOST and not terms.is_lost(lease.expires_at, tx.now):
        return False
    error = _error_text(lease, kind)
    of_run = {"job_id": lease.job_id, "run_id": lease.id if lease.job_id else None, "worker_id": lease.worker_id}
    tx.record(events.ZOMBIE_FOUND, **of_run, reservation_id=lease.reservation_id, error_kind=kind)
    if kind is ErrorKind.LOST:
        expired_at, heartbeat = iso(lease.expires_at), iso(lease.heartbeat_at)
        tx.record(events.LEASE_EXPIRED, **of_run, expired_at=expired_at, heartbeat_at=heartbeat)
    tx.execute("DELETE FROM leases WHERE id = :id", id=lease.id)
    tx.wake(Topic.SLOTS)
    if lease.reservation_id is not None:
        end_active(tx, lease.reservation_id, lease.worker_id, ReservationOutcome.FAILED, error, kind)
        tx.wake(Topic.DIRECT)
        action = "the reservation was ended; it is not tried again"
    else:
        action = _end_job(tx, lease, kind, error)
    tx.record(events.RECOVERY_ACTED, **of_run, reservation_id=lease.reservation_id, action=action)
    return True


def _error_text(lease: Lease, kind: ErrorKind) -> str:
    what = "died" if kind is ErrorKind.CRASH else f"fell silent and its lease ran out at {iso(lease.expires_at)}"
    return f"Crash recovery: the worker {lease.worker_id} {what}; its last heartbeat was at {iso(lease.heartbeat_at)}"


def _end_job(tx: Transaction, lease: Lease, kind: ErrorKind, error: str) -> str:
    job = locked_job(tx, lease.job_id or "")
    if job is None:
        return "the lease of a job that does not exist was removed"
    if job.status is JobStatus.QUEUED:
        return "the lease of a job that is QUEUED was removed"
    return close_execution(tx, job, kind, error, lease.worker_id)


def why_expired(tx: Transaction, row: Sequence[Any], terms: LeaseTerms, dead_workers: Collection[str]) -> str | None:
    """Why nobody waits for this reservation any more; None if somebody does.

    `row` is (owner, expires_at, of the owner's worker row id, expires_at and stopped_at, and the kind). A program that
    waits for a borrowed slot need not be a worker of the store: then only `expires_at` counts.
    """
    owner, expires_at, known, beats_until, stopped_at, kind = row
    until = tx.time(expires_at)
    if owner is None:
        if kind == ReservationKind.DIRECT:
            return "it has no owner"
        return "nobody extended it in time" if until is None or until <= tx.now else None
    if owner in dead_workers:
        return f"its owner {owner} died"
    if known is None:
        return f"its owner {owner} is not known"
    if stopped_at is not None:
        return f"its owner {owner} has ended"
    if until is None or until <= tx.now:
        return f"its owner {owner} did not extend it in time"
    last = tx.time(beats_until)
    if last is not None and terms.is_lost(last, tx.now):
        return f"its owner {owner} fell silent"
    return None


def expire_reservation(
    tx: Transaction, reservation_id: str, terms: LeaseTerms, dead_workers: Collection[str] = ()
) -> bool:
    """Expires a reservation that nobody waits for; if it is served, its lease stays until the handler has ended."""
    row = tx.one(
        "SELECT r.owner, r.expires_at, w.id, w.expires_at, w.stopped_at, r.kind FROM direct_reservations r "
        "LEFT JOIN workers w ON w.id = r.owner WHERE r.id = :id AND r.status = 'ACTIVE' "
        "AND (r.kind = 'direct' OR r.granted_at IS NULL) FOR UPDATE OF r",
        id=reservation_id,
    )
    if row is None or (why := why_expired(tx, row, terms, dead_workers)) is None:
        return False
    tx.execute(
        "UPDATE direct_reservations SET status = 'EXPIRED', outcome = 'FAILED', finished_at = :now, error = :error, "
        "error_kind = 'lost' WHERE id = :id",
        id=reservation_id,
        now=tx.now,
        error=f"Crash recovery: the reservation expired because {why}",
    )
    tx.record(events.RESERVATION_EXPIRED, worker_id=row[0], reservation_id=reservation_id, reason=why)
    tx.record(
        events.RECOVERY_ACTED, worker_id=row[0], reservation_id=reservation_id, action="the reservation was expired"
    )
    tx.wake(Topic.DIRECT, Topic.SLOTS, Topic.READY, Topic.CANCEL)
    return True
