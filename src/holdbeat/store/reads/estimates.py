"""Mean durations, and estimates of when a waiting Job will start (API-06)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any

from holdbeat.domain.capacity import Capacity, needed
from holdbeat.domain.estimate import Ahead, Execution, estimated_start
from holdbeat.domain.job import Hold, Job, JobStatus
from holdbeat.domain.lease import HTTP_RESOURCE
from holdbeat.domain.limit import Pool
from holdbeat.domain.reservation import Reservation
from holdbeat.domain.waits import WaitKind
from holdbeat.store.ended_runs import RUN_END, RUN_HAS_ENDED
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.limits.rates import instant_of
from holdbeat.store.limits.turns import fair_pool, turn_of
from holdbeat.store.limits.usage import usage
from holdbeat.store.reads.blockers import Blocker, Blockers
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.transaction import Row, Transaction

LAST_RUNS = 20
UNLIMITED = 1_000_000
"""The number of slots of work that nothing limits."""
AHEAD_MAX = 10_000
"""A longer line is not estimated: reading it would cost more than the answer is worth."""


_LAST_RUNS = (
    "SELECT r.started_at, r.finished_at FROM jobs j INDEXED BY jobs_ran JOIN job_runs r ON r.job_id = j.id "
    f"WHERE j.type = :type AND {RUN_HAS_ENDED} AND r.worker_id IS NOT NULL AND r.finished_at IS NOT NULL "
    f"ORDER BY {RUN_END} DESC LIMIT :count"
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

    Unknown are: gated and paused jobs, those that wait for a signal, a person or a child, those without a worker, and
    those behind a type that never ran.
    """
    if job.status is not JobStatus.QUEUED or job.hold in (Hold.GATED, Hold.OVERLAPPED, Hold.WAITING, Hold.BLOCKED):
        return None
    if any(wait["kind"] != WaitKind.SLEEP for wait in job.current_waits):
        return None
    state = blockers or Blockers(tx)
    if {Blocker.PAUSED, Blocker.NO_WORKER} & set(state.of(job)):
        return None
    line = line_before(tx, job)
    if line is None:
        return None
    requests = [_ahead(request) for request in waiting_requests(tx, job)]
    return _start_behind(tx, job, requests + line.before, state, job.not_before)


def _ahead(work: Reservation) -> Ahead:
    return Ahead(work.type, work.weight, work.partition)


def estimate_grant(tx: Transaction, reservation: Reservation, blockers: Blockers | None = None) -> datetime | None:
    """When a waiting direct request will probably get its slot: behind those that came before it, ahead of all jobs."""
    state = blockers or Blockers(tx)
    if reservation.is_direct and not any(
        worker.can_serve(reservation.resource, reservation.type) for worker in state.workers
    ):
        return None
    line = waiting_requests(tx, reservation)
    before = [ahead for ahead in line if (ahead.requested_at, ahead.id) < (reservation.requested_at, reservation.id)]
    return _start_behind(tx, reservation, [_ahead(ahead) for ahead in before], state)


def waiting_requests(tx: Transaction, work: Job | Reservation) -> list[Reservation]:
    """Direct requests that wait for a slot of the pool that `work` draws from, in the order of their coming."""
    condition, params = pool_condition(tx, work)
    waiting = "WHERE status = 'ACTIVE' AND granted_at IS NULL AND expires_at > :now"
    return RESERVATIONS.all(tx, f"{waiting} AND {condition} ORDER BY requested_at, id", now=tx.now, **params)


def _start_behind(
    tx: Transaction, work: Job | Reservation, line: list[Ahead], state: Blockers, not_before: datetime | None = None
) -> datetime | None:
    pool = fullest_pool(tx, work)
    condition, params = pool_condition(tx, work)
    running = [
        Execution(type_, tx.instant(since), _needed(pool, weight))
        for type_, since, weight in tx.rows(f"SELECT type, acquired_at, weight FROM leases WHERE {condition}", **params)
    ]
    partitions = [entry.partition for entry in line]
    at = state.capacity.next_start(work.resource, work.type, work.partition, partitions)
    if at is not None:
        permitted_at = instant_of(tx, at)
        not_before = permitted_at if not_before is None else max(not_before, permitted_at)
    return estimated_start(
        tx.now,
        slots=_slots(pool, work, state, heaviest=max(entry.weight for entry in (work, *line, *running))),
        running=running,
        ahead=[entry._replace(weight=_needed(pool, entry.weight)) for entry in line],
        mean_s=mean_durations(tx, {*(entry.type for entry in line), *(execution.type for execution in running)}),
        not_before=not_before,
        weight=_needed(pool, work.weight),
    )


def _needed(pool: Pool | None, weight: int) -> int:
    return 1 if pool is None else needed(pool, weight)


def pool_condition(tx: Transaction, work: Job | Reservation) -> tuple[str, dict[str, Any]]:
    """The condition for everything that draws from the fullest of the pools from which `work` draws."""
    pool = fullest_pool(tx, work)
    return ("1 = 1", {}) if pool is None else _condition(pool, work)


def _condition(pool: Pool, work: Job | Reservation, *, by_partition: bool = True) -> tuple[str, dict[str, Any]]:
    limit = pool.limit
    params = {}
    if limit.resource is not None:
        params["resource"] = work.resource
    if limit.type is not None:
        params["type"] = work.type
    if limit.per_partition and by_partition:
        params["partition"] = work.partition
    return " AND ".join(f"{name} = :{name}" for name in params) or "1 = 1", params


def fullest_pool(tx: Transaction, work: Job | Reservation) -> Pool | None:
    """The pool that has the fewest free slots for `work`; None if nothing limits it."""
    return Capacity(limits_in_force(tx), usage(tx)).fullest(work.resource, work.type, work.partition, work.weight)


def _slots(pool: Pool | None, work: Job | Reservation, state: Blockers, *, heaviest: int) -> int:
    """The limit of the pool, or what the live workers have if that is less and all weigh one slot."""
    limit = None if pool is None else pool.limit.slots
    if isinstance(work, Reservation) and not work.is_direct:
        return UNLIMITED if limit is None else limit
    lane = "http_slots" if work.resource == HTTP_RESOURCE else "slots"
    offered = sum(int(getattr(worker, lane)) for worker in state.workers if worker.can_serve(work.resource, work.type))
    if limit is None:
        return offered
    return min(limit, offered) if heaviest == 1 else limit


@dataclass(frozen=True, slots=True)
class Line:
    """The ready jobs that would be claimed before one, in that order."""

    before: list[Ahead]
    fair: Pool | None = None
    """The pool by whose turns they go; None where the order of the queue decides."""


def line_before(tx: Transaction, job: Job) -> Line | None:
    """The jobs ahead of a job; None if there are too many to read."""
    fair = fair_pool(limits_in_force(tx), job.resource, job.type)
    condition, params = pool_condition(tx, job) if fair is None else _condition(fair, job, by_partition=False)
    row = tx.one("SELECT effective_priority FROM jobs WHERE id = :id", id=job.id)
    effective = row[0] if row else job.priority
    place = "(position, created_at, id) < (:position, :created_at, :id)" if fair is None else "1 = 1"
    rows = tx.rows(
        "SELECT id, type, weight, partition, effective_priority, put_first FROM jobs "
        f"WHERE status = 'QUEUED' AND hold = 0 AND {condition} "
        f"AND (effective_priority > :effective OR (effective_priority = :effective AND {place})) "
        "ORDER BY effective_priority DESC, position, created_at, id LIMIT :count",
        **({"position": job.position, "created_at": job.created_at, "id": job.id} if fair is None else {}),
        effective=effective,
        count=AHEAD_MAX + 1,
        **params,
    )
    if len(rows) > AHEAD_MAX:
        return None
    if fair is not None:
        rows = _in_turn(tx, fair, rows, effective, job)
    return Line([Ahead(*row[1:4]) for row in rows if row[0] != job.id], fair)


def _in_turn(tx: Transaction, fair: Pool, rows: list[Row], effective: int, job: Job) -> list[Row]:
    """Those before the job where partitions take turns: higher priorities, those moved to the top, then by turn."""
    same_priority = [row for row in rows if row[4] == effective and not row[5]]
    first = [row for row in rows if row[4] > effective or row[5]]
    if job.hold is Hold.READY and job.id not in {row[0] for row in same_priority}:
        return first[: next((index for index, row in enumerate(first) if row[0] == job.id), None)]
    queues: dict[str, list[Row]] = {}
    for row in same_priority:
        queues.setdefault(row[3], []).append(row)
    if job.hold is not Hold.READY:
        queues.setdefault(job.partition, []).append((job.id,))
    ordered = turn_of(tx, fair).merged(queues)
    return [*first, *takewhile(lambda row: row[0] != job.id, ordered)]
