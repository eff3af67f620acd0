"""What the store knows about durations, and when a waiting Job will probably start (API-06)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from holdbeat.domain.capacity import Capacity
from holdbeat.domain.estimate import Execution, estimated_start
from holdbeat.domain.job import Hold, Job, JobStatus
from holdbeat.domain.lease import HTTP_RESOURCE
from holdbeat.domain.limit import Pool
from holdbeat.domain.reservation import Reservation
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.limits.usage import usage
from holdbeat.store.reads.blockers import Blocker, Blockers, can_serve
from holdbeat.store.reads.rows import RESERVATION, reservation_of
from holdbeat.store.transaction import Transaction

LAST_RUNS = 20
UNLIMITED = 1_000_000
"""Stands for the slots of what nothing limits."""
AHEAD_MAX = 10_000
"""A longer line is not estimated: reading it would cost more than the answer is worth."""


_LAST_RUNS = (
    "SELECT started_at, finished_at FROM job_runs INDEXED BY job_runs_finished "
    "WHERE type = :type AND finished_at IS NOT NULL AND worker_id IS NOT NULL "
    "ORDER BY finished_at DESC LIMIT :count"
)
_LAST_HELD = (
    "SELECT granted_at, finished_at FROM direct_reservations WHERE type = :type AND kind <> 'direct' "
    "AND granted_at IS NOT NULL AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT :count"
)


def mean_durations(tx: Transaction, types: Iterable[str]) -> dict[str, float]:
    """Seconds that the last 20 finished runs of each type took on average; types that never ran are left out.

    Slots that were held without a handler have types of their own (`slot/gpu`), and no runs.
    """
    means = {}
    for type_ in sorted(set(types)):
        rows = tx.rows(_LAST_HELD if "/" in type_ else _LAST_RUNS, type=type_, count=LAST_RUNS)
        if rows:
            took = [(tx.instant(finished) - tx.instant(started)).total_seconds() for started, finished in rows]
            means[type_] = max(0.0, sum(took) / len(took))
    return means


def estimate_start(tx: Transaction, job: Job, blockers: Blockers | None = None) -> datetime | None:
    """When a QUEUED job will probably start; None where that cannot be known.

    Unknown are: gated and paused jobs, those without a worker, and those behind a type that never ran.
    """
    if job.status is not JobStatus.QUEUED or job.hold in (Hold.GATED, Hold.OVERLAPPED, Hold.WAITING, Hold.BLOCKED):
        return None
    state = blockers or Blockers(tx)
    if {Blocker.PAUSED, Blocker.NO_WORKER} & set(state.of(job)):
        return None
    ahead = types_ahead(tx, job)
    if ahead is None:
        return None
    return _start_behind(
        tx, job, [request.type for request in waiting_requests(tx, job)] + ahead, state, job.not_before
    )


def estimate_grant(tx: Transaction, reservation: Reservation, blockers: Blockers | None = None) -> datetime | None:
    """When a waiting direct request will probably get its slot: behind those that came before it, ahead of all jobs."""
    state = blockers or Blockers(tx)
    if reservation.is_direct and not any(
        can_serve(worker, reservation.resource, reservation.type) for worker in state.workers
    ):
        return None
    line = waiting_requests(tx, reservation)
    before = [other for other in line if (other.requested_at, other.id) < (reservation.requested_at, reservation.id)]
    return _start_behind(tx, reservation, [other.type for other in before], state)


def waiting_requests(tx: Transaction, work: Job | Reservation) -> list[Reservation]:
    """Direct requests that wait for a slot of the pool that `work` draws from, in the order of their coming."""
    condition, params = pool_condition(tx, work)
    rows = tx.rows(
        f"SELECT {RESERVATION} FROM direct_reservations WHERE status = 'ACTIVE' AND granted_at IS NULL "
        f"AND expires_at > :now AND {condition} ORDER BY requested_at, id",
        now=tx.now,
        **params,
    )
    return [reservation_of(tx, row) for row in rows]


def _start_behind(
    tx: Transaction, work: Job | Reservation, line: list[str], state: Blockers, not_before: datetime | None = None
) -> datetime | None:
    condition, params = pool_condition(tx, work)
    running = [
        Execution(row[0], tx.instant(row[1]))
        for row in tx.rows(f"SELECT type, acquired_at FROM leases WHERE {condition}", **params)
    ]
    return estimated_start(
        tx.now,
        slots=_slots(tx, work, state),
        running=running,
        ahead=line,
        mean_s=mean_durations(tx, {*line, *(execution.type for execution in running)}),
        not_before=not_before,
    )


def pool_condition(tx: Transaction, work: Job | Reservation) -> tuple[str, dict[str, Any]]:
    """The condition for everything that draws from the fullest of the pools from which `work` draws."""
    pool = fullest_pool(tx, work)
    if pool is None:
        return "1 = 1", {}
    limit = pool.limit
    params = {}
    if limit.resource is not None:
        params["resource"] = work.resource
    if limit.type is not None:
        params["type"] = work.type
    if limit.per_partition:
        params["partition"] = work.partition
    return " AND ".join(f"{name} = :{name}" for name in params) or "1 = 1", params


def fullest_pool(tx: Transaction, work: Job | Reservation) -> Pool | None:
    """The pool that has the fewest free slots for `work`; None if nothing limits it."""
    return Capacity(limits_in_force(tx), usage(tx)).fullest(work.resource, work.type, work.partition)


def _slots(tx: Transaction, work: Job | Reservation, state: Blockers) -> int:
    """The limit of the pool, or what the live workers have if that is less."""
    limit = state.limits.slots_of(work.resource, work.type)
    if isinstance(work, Reservation) and not work.is_direct:
        return UNLIMITED if limit is None else limit
    lane = "http_slots" if work.resource == HTTP_RESOURCE else "slots"
    offered = sum(int(getattr(worker, lane)) for worker in state.workers if can_serve(worker, work.resource, work.type))
    return offered if limit is None else min(limit, offered)


def types_ahead(tx: Transaction, job: Job) -> list[str] | None:
    """Types of the ready jobs that would be claimed before this one, in that order; None if there are too many."""
    condition, params = pool_condition(tx, job)
    row = tx.one("SELECT effective_priority FROM jobs WHERE id = :id", id=job.id)
    effective = row[0] if row else job.priority
    rows = tx.rows(
        f"SELECT type FROM jobs WHERE status = 'QUEUED' AND hold = 0 AND {condition} AND id <> :id "
        "AND (effective_priority > :effective OR (effective_priority = :effective "
        "AND (position, created_at, id) < (:position, :created_at, :id))) "
        "ORDER BY effective_priority DESC, position, created_at, id LIMIT :count",
        id=job.id,
        effective=effective,
        position=job.position,
        created_at=job.created_at,
        count=AHEAD_MAX + 1,
        **params,
    )
    return None if len(rows) > AHEAD_MAX else [row[0] for row in rows]
