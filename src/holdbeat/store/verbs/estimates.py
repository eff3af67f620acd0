"""What the store knows about durations, and when a waiting Job will probably start (API-06)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from holdbeat.domain.concurrency import PolicyKind
from holdbeat.domain.estimate import Execution, estimated_start
from holdbeat.domain.job import Hold, Job, JobStatus
from holdbeat.domain.lease import HTTP_RESOURCE
from holdbeat.store.transaction import Transaction
from holdbeat.store.verbs.blocking import Blocker, Blockers, can_serve
from holdbeat.store.verbs.rows import certain

LAST_RUNS = 20
_AHEAD_MAX = 10_000
"""A longer line is not estimated: reading it would cost more than the answer is worth."""


def mean_durations(tx: Transaction, types: Iterable[str]) -> dict[str, float]:
    """Seconds that the last 20 finished runs of each type took on average; types that never ran are left out."""
    means = {}
    for type_ in sorted(set(types)):
        rows = tx.rows(
            "SELECT started_at, finished_at FROM job_runs INDEXED BY job_runs_finished "
            "WHERE type = :type AND finished_at IS NOT NULL AND worker_id IS NOT NULL "
            "ORDER BY finished_at DESC LIMIT :count",
            type=type_,
            count=LAST_RUNS,
        )
        if rows:
            took = [
                (certain(tx.time, finished) - certain(tx.time, started)).total_seconds() for started, finished in rows
            ]
            means[type_] = max(0.0, sum(took) / len(took))
    return means


def estimate_start(tx: Transaction, job: Job, blockers: Blockers | None = None) -> datetime | None:
    """When a QUEUED job will probably start; None where that cannot be known.

    Unknown are: gated and paused jobs, those without a worker, and those behind a type that never ran.
    """
    if job.status is not JobStatus.QUEUED or job.hold in (Hold.GATED, Hold.OVERLAPPED):
        return None
    state = blockers or Blockers(tx)
    if {Blocker.PAUSED, Blocker.NO_WORKER} & set(state.of(job)):
        return None
    condition, params = _pool(tx, job)
    ahead = _ahead(tx, job, condition, params)
    if ahead is None:
        return None
    direct = tx.rows(
        "SELECT type FROM direct_reservations WHERE status = 'ACTIVE' AND granted_at IS NULL AND expires_at > :now "
        f"AND {condition} ORDER BY requested_at, id",
        now=tx.now,
        **params,
    )
    running = [
        Execution(row[0], certain(tx.time, row[1]))
        for row in tx.rows(f"SELECT type, acquired_at FROM leases WHERE {condition}", **params)
    ]
    line = [row[0] for row in direct] + ahead
    return estimated_start(
        tx.now,
        slots=_slots(tx, job, state),
        running=running,
        ahead=line,
        mean_s=mean_durations(tx, {*line, *(each.type for each in running)}),
        not_before=job.not_before,
    )


def _pool(tx: Transaction, job: Job) -> tuple[str, dict[str, Any]]:
    """The condition for everything that draws from the same slots."""
    match tx.terms.concurrency.kind:
        case PolicyKind.RESOURCES:
            return "resource = :resource", {"resource": job.resource}
        case PolicyKind.PER_TYPE:
            return "type = :type", {"type": job.type}
        case _:
            return "1 = 1", {}


def _slots(tx: Transaction, job: Job, state: Blockers) -> int:
    """The limit of the pool, or what the live workers have if that is less."""
    policy = tx.terms.concurrency
    limit = policy.limit(policy.pool(job.resource, job.type))
    lane = "http_slots" if job.resource == HTTP_RESOURCE else "slots"
    offered = sum(int(getattr(worker, lane)) for worker in state.workers if can_serve(worker, job.resource, job.type))
    return offered if limit is None else min(limit, offered)


def _ahead(tx: Transaction, job: Job, condition: str, params: dict[str, Any]) -> list[str] | None:
    """Types of the ready jobs that would be claimed before this one, in that order."""
    row = tx.one("SELECT effective_priority FROM jobs WHERE id = :id", id=job.id)
    effective = row[0] if row else job.priority
    found = tx.rows(
        f"SELECT type FROM jobs WHERE status = 'QUEUED' AND hold = 0 AND {condition} AND id <> :id "
        "AND (effective_priority > :effective OR (effective_priority = :effective "
        "AND (position, created_at, id) < (:position, :created_at, :id))) "
        "ORDER BY effective_priority DESC, position, created_at, id LIMIT :count",
        id=job.id,
        effective=effective,
        position=job.position,
        created_at=job.created_at,
        count=_AHEAD_MAX + 1,
        **params,
    )
    return None if len(found) > _AHEAD_MAX else [row[0] for row in found]
