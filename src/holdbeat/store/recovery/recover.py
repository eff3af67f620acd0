"""Recovery: finds work whose holder is gone and states that no verb leaves behind, and lets them end in order.

Guards REC-01 … REC-05. Looking is one read; each repair is a unit of work of its own that looks again under the lock,
so several recoverers act once, one failure leaves the others, and where nothing is wrong nothing is written, not even
an Event. QUEUED jobs are not looked at. Consequences are those of every ending: retry, group, schedule, webhook.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.run import ErrorKind
from holdbeat.store.jobs.expiry import expire_jobs, has_expired
from holdbeat.store.recovery.recover_jobs import decide_job, recover_job, step_group
from holdbeat.store.recovery.recover_leases import expire_reservation, recover_lease
from holdbeat.store.recovery.recover_leases import why_expired as _why_expired
from holdbeat.store.running.held_slots import end_unextended
from holdbeat.store.running.workers import stop_worker
from holdbeat.store.schedules.after_run import orphaned_schedules, replan_orphan
from holdbeat.store.transaction import Transaction

RecoveryUnit = tuple[Callable[..., bool], tuple[Any, ...]]
"""A verb and its arguments after the transaction; it answers whether it changed anything."""


@dataclass(frozen=True, slots=True)
class SilentLease:
    """A lease whose holder is dead or has been silent for too long."""

    lease_id: str
    worker_id: str
    heartbeat_at: datetime
    kind: ErrorKind
    """`crash` if the process is known to be dead, `lost` if only its lease ran out."""


@dataclass(frozen=True, slots=True)
class BorrowedSlot:
    """A slot that a program holds, which ends by the clock alone."""

    reservation_id: str
    extended_at: datetime
    ttl_s: float
    is_late: bool
    """Whether its time is over by the wall clock."""


@dataclass(slots=True)
class Trouble:
    """Everything that needs repair, by id."""

    at: datetime
    """When this was looked for, by the clock that decides what is late."""
    leases: list[SilentLease] = field(default_factory=list)
    borrowed: list[BorrowedSlot] = field(default_factory=list)
    """Borrowed slots that were not extended in time."""
    jobs: list[str] = field(default_factory=list)
    """RUNNING without a lease, or CANCELLED with an open run that nobody executes."""
    undecided: list[str] = field(default_factory=list)
    """FAILED without a retry or a verdict."""
    has_expired: bool = False
    """A job that waits has expired, and nobody claims."""
    reservations: list[str] = field(default_factory=list)
    """ACTIVE, but nobody waits for the answer any more."""
    groups: list[str] = field(default_factory=list)
    """Unfinished, but nothing in them can move by itself."""
    schedules: list[str] = field(default_factory=list)
    """Adaptive, with neither a plan nor an unfinished job."""
    workers: list[str] = field(default_factory=list)
    """Known to be dead and not yet written down as such."""
    silent_workers: list[str] = field(default_factory=list)
    """Not heard of for longer than their leases and the grace, where nothing else tells of a death."""
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    dead_workers: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(recovery_units(self))


def find_trouble(
    tx: Transaction, terms: LeaseTerms, dead_workers: Collection[str] = (), *, thorough: bool = True
) -> Trouble:
    """Looks for everything that recovery can repair, without changing anything.

    `dead_workers` are those whose processes are certainly gone. `thorough` also looks for states that only a hand can
    have written and that take a walk through history to find: at the start, and now and then.
    """
    dead = frozenset(dead_workers)
    return Trouble(
        tx.now,
        leases=_silent_leases(tx, terms, dead),
        borrowed=[slot for slot in borrowed_slots(tx) if slot.is_late],
        jobs=tx.column(
            "SELECT j.id FROM jobs AS j INDEXED BY jobs_running LEFT JOIN leases l ON l.job_id = j.id "
            "WHERE j.status = 'RUNNING' AND l.id IS NULL ORDER BY j.id",
        )
        + (tx.column(_ABANDONED_CANCELS) if thorough else []),
        has_expired=has_expired(tx),
        undecided=tx.column(f"SELECT id FROM jobs WHERE {_undecided(tx)} ORDER BY id"),
        reservations=_abandoned_reservations(tx, terms, dead),
        groups=tx.column(_STUCK_GROUPS) if thorough else [],
        schedules=orphaned_schedules(tx),
        workers=tx.column(
            "SELECT id FROM workers WHERE id IN :dead AND stopped_at IS NULL ORDER BY id", dead=sorted(dead)
        )
        if dead
        else [],
        # On SQLite the lock of a worker shows whether it lives; a stopped process is still alive.
        silent_workers=[] if tx.dialect == "sqlite" else tx.column(_SILENT_WORKERS, limit=_silent_before(tx, terms)),
        terms=terms,
        dead_workers=dead,
    )


def recovery_units(trouble: Trouble) -> list[RecoveryUnit]:
    """The repairs of a trouble, each a unit of work of its own, in an order in which one makes the next possible."""
    units: list[RecoveryUnit] = []
    units += [
        (recover_lease, (lease.lease_id, lease.kind, lease.heartbeat_at, trouble.terms)) for lease in trouble.leases
    ]
    units += [(end_unextended, (slot.reservation_id,)) for slot in trouble.borrowed]
    units += [(recover_job, (job_id,)) for job_id in trouble.jobs]
    units += [(decide_job, (job_id,)) for job_id in trouble.undecided]
    if trouble.has_expired:
        units.append((expire_jobs, ()))
    units += [
        (expire_reservation, (reservation_id, trouble.terms, trouble.dead_workers))
        for reservation_id in trouble.reservations
    ]
    units += [(step_group, (group_id,)) for group_id in trouble.groups]
    units += [(replan_orphan, (schedule_id,)) for schedule_id in trouble.schedules]
    units += [(stop_dead_worker, (worker_id,)) for worker_id in trouble.workers]
    units += [(end_silent_worker, (worker_id, trouble.terms)) for worker_id in trouble.silent_workers]
    return units


def stop_dead_worker(tx: Transaction, worker_id: str) -> bool:
    """Writes down that a worker is dead, once nothing is left of it that recovery still has to find by its death."""
    return not _has_work(tx, worker_id) and stop_worker(tx, worker_id, "its process died")


def _has_work(tx: Transaction, worker_id: str) -> bool:
    row = tx.one(
        "SELECT 1 FROM leases WHERE worker_id = :id "
        "UNION ALL SELECT 1 FROM direct_reservations WHERE status = 'ACTIVE' AND owner = :id LIMIT 1",
        id=worker_id,
    )
    return row is not None


_ABANDONED_CANCELS = (
    "SELECT j.id FROM jobs j JOIN job_runs r ON r.job_id = j.id LEFT JOIN leases l ON l.job_id = j.id "
    "WHERE j.status = 'CANCELLED' AND r.status IS NULL AND l.id IS NULL ORDER BY j.id"
)
_STUCK_GROUPS = (
    "SELECT g.id FROM job_groups g WHERE g.status IN ('QUEUED', 'RUNNING') "
    "AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.group_id = g.id "
    " AND (j.status = 'RUNNING' OR (j.status = 'QUEUED' AND j.hold <> 2))) "
    "AND NOT EXISTS (SELECT 1 FROM jobs j JOIN leases l ON l.job_id = j.id WHERE j.group_id = g.id) "
    "AND EXISTS (SELECT 1 FROM jobs j WHERE j.group_id = g.id) ORDER BY g.id"
)
"""Groups in which no member runs, waits in the queue, or is still executed: only a step can move them."""
_SILENT_WORKERS = "SELECT id FROM workers WHERE stopped_at IS NULL AND expires_at < :limit"


def _silent_before(tx: Transaction, terms: LeaseTerms) -> datetime:
    return tx.now - timedelta(seconds=terms.grace_s)


def end_silent_worker(tx: Transaction, worker_id: str, terms: LeaseTerms) -> bool:
    """Writes down that a worker is gone; should it have been frozen only, its next heartbeat takes that back."""
    silent = tx.one(f"{_SILENT_WORKERS} AND id = :id", limit=_silent_before(tx, terms), id=worker_id)
    return silent is not None and not _has_work(tx, worker_id) and stop_worker(tx, worker_id, "its heartbeat stopped")


def _undecided(tx: Transaction) -> str:
    """The condition of the index `jobs_undecided`, which differs by engine."""
    verdict = "permanently_failed = 0" if tx.dialect == "sqlite" else "NOT permanently_failed"
    return f"status = 'FAILED' AND retried_by IS NULL AND {verdict}"


def _silent_leases(tx: Transaction, terms: LeaseTerms, dead: frozenset[str]) -> list[SilentLease]:
    rows = tx.rows(
        "SELECT id, worker_id, heartbeat_at FROM leases "
        "WHERE worker_id IS NOT NULL AND (expires_at < :limit OR worker_id IN :dead) ORDER BY id",
        limit=_silent_before(tx, terms),
        dead=sorted(dead),
    )
    return [
        SilentLease(row[0], row[1], tx.instant(row[2]), ErrorKind.CRASH if row[1] in dead else ErrorKind.LOST)
        for row in rows
    ]


def borrowed_slots(tx: Transaction) -> list[BorrowedSlot]:
    """All slots that programs hold now."""
    rows = tx.rows("SELECT id, heartbeat_at, expires_at FROM leases WHERE worker_id IS NULL ORDER BY id")
    slots = []
    for reservation_id, heartbeat_at, expires_at in rows:
        since, until = tx.instant(heartbeat_at), tx.instant(expires_at)
        slots.append(BorrowedSlot(reservation_id, since, (until - since).total_seconds(), until <= tx.now))
    return slots


def _abandoned_reservations(tx: Transaction, terms: LeaseTerms, dead: frozenset[str]) -> list[str]:
    rows = tx.rows(
        "SELECT r.id, r.owner, r.expires_at, w.id, w.expires_at, w.stopped_at, r.kind "
        "FROM direct_reservations AS r INDEXED BY direct_reservations_active "
        "LEFT JOIN workers w ON w.id = r.owner "
        "WHERE r.status = 'ACTIVE' AND (r.kind = 'direct' OR r.granted_at IS NULL) ORDER BY r.id"
    )
    return [row[0] for row in rows if _why_expired(tx, row[1:], terms, dead)]
