"""Why a QUEUED Job does not run now, as codes: for the queue's list and for explanations.

Reads the state of pauses, slots, direct requests and workers once, then judges any number of jobs by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdbeat.domain.capacity import Capacity, Usage
from holdbeat.domain.job import Hold, Job
from holdbeat.domain.lease import HTTP_RESOURCE
from holdbeat.domain.policy import Work
from holdbeat.domain.worker import Worker
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.limits.policies import PolicyView
from holdbeat.store.limits.rates import rates_in_use
from holdbeat.store.limits.throttles import throttles_in_force
from holdbeat.store.limits.usage import usage
from holdbeat.store.pausing import EVERYTHING
from holdbeat.store.reads.workers import live_workers
from holdbeat.store.transaction import Transaction


class Blocker(StrEnum):
    DELAYED = "delayed"
    GROUP_PREDECESSOR = "group_predecessor"
    OVERLAP = "overlap"
    UPSTREAM = "upstream"
    WAITING = "waiting"
    PAUSED = "paused"
    RESOURCE_FULL = "resource_full"
    RATE_LIMITED = "rate_limited"
    THROTTLED = "throttled"
    RESERVATION_WAITING = "reservation_waiting"
    POLICY = "policy"
    NO_WORKER = "no_worker"
    WORKERS_BUSY = "workers_busy"


_OF_HOLD = {
    Hold.GATED: Blocker.GROUP_PREDECESSOR, Hold.OVERLAPPED: Blocker.OVERLAP, Hold.BLOCKED: Blocker.UPSTREAM,
}  # fmt: skip


class Blockers:
    """Finds the blockers of jobs at one instant."""

    def __init__(self, tx: Transaction) -> None:
        self._now = tx.now
        self.paused = set(tx.column("SELECT resource FROM queue_pauses"))
        waiting = tx.rows(
            "SELECT resource, type, count(*), partition, sum(weight) FROM direct_reservations "
            "WHERE status = 'ACTIVE' AND granted_at IS NULL AND expires_at > :now GROUP BY resource, type, partition",
            now=tx.now,
        )
        self.limits = limits_in_force(tx)
        self.capacity = Capacity(self.limits, usage(tx), [Usage(*row) for row in waiting], now=tx.now.timestamp())
        self.capacity.learn_rates(rates_in_use(tx))
        self.capacity.learn_throttles(throttles_in_force(tx))
        policy = tx.terms.policy
        self._view = None if policy is None else PolicyView(tx, policy, locked=False)
        self.workers = [worker for worker in live_workers(tx) if worker.stopping_at is None]
        holder_rows = tx.rows(
            "SELECT worker_id, sum(CASE WHEN slot < 0 THEN 1 ELSE 0 END), count(*) FROM leases "
            "WHERE slot IS NOT NULL GROUP BY worker_id"
        )
        self._held = {row[0]: (int(row[1]), int(row[2]) - int(row[1])) for row in holder_rows}

    def limit_of(self, job: Job, blocker: Blocker) -> str | None:
        """The name of the limit that a job waits for, if that is what stands in its way."""
        kind = job.resource, job.type, job.partition
        match blocker:
            case Blocker.RESOURCE_FULL:
                pools = [self.capacity.fullest(*kind, job.weight)]
            case Blocker.RATE_LIMITED:
                pools = [*self.capacity.used_up(*kind)]
            case Blocker.THROTTLED:
                pools = [*self.capacity.throttling(*kind)]
            case _:
                return None
        return next((pool.limit.name for pool in pools if pool is not None), None)

    def _has_free_slot(self, worker: Worker, resource: str) -> bool:
        http, ordinary = self._held.get(worker.id, (0, 0))
        return http < worker.http_slots if resource == HTTP_RESOURCE else ordinary < worker.slots

    def with_workers(self, job: Job) -> tuple[Blocker, ...]:
        """The blockers of a job, and without any whether no worker that could run it has a free slot."""
        blocked_by = self.of(job)
        if blocked_by:
            return blocked_by
        able = [worker for worker in self.workers if worker.can_serve(job.resource, job.type)]
        busy = not any(self._has_free_slot(worker, job.resource) for worker in able)
        return (Blocker.WORKERS_BUSY,) if busy else ()

    def of(self, job: Job) -> tuple[Blocker, ...]:
        """All that keeps a QUEUED job from running now, what is nearest to it first."""
        blocked_by = []
        if job.hold in _OF_HOLD:
            blocked_by.append(_OF_HOLD[job.hold])
        if job.waits_for is not None:
            blocked_by.append(Blocker.WAITING)
        elif job.not_before is not None and job.not_before > self._now:
            blocked_by.append(Blocker.DELAYED)
        if EVERYTHING in self.paused or job.resource in self.paused:
            blocked_by.append(Blocker.PAUSED)
        kind = (job.resource, job.type, job.partition)
        if self.capacity.throttled_until(*kind) is not None:
            blocked_by.append(Blocker.THROTTLED)
        elif self.capacity.is_full(*kind, job.weight):
            blocked_by.append(Blocker.RESOURCE_FULL)
        elif self.capacity.next_start(*kind) is not None:
            blocked_by.append(Blocker.RATE_LIMITED)
        elif self.capacity.free_for_jobs(*kind, job.weight) == 0:
            blocked_by.append(Blocker.RESERVATION_WAITING)
        elif self._view is not None:
            work = Work(job.type, job.resource, job.partition, job.weight, job.priority, job.affinity)
            if not self._view.permits(work):
                blocked_by.append(Blocker.POLICY)
        if not any(worker.can_serve(job.resource, job.type) for worker in self.workers):
            blocked_by.append(Blocker.NO_WORKER)
        return tuple(blocked_by)


@dataclass(frozen=True, slots=True)
class Predecessor:
    job_id: str
    status: str
    has_lease: bool
    sequence: int | None = None


def unfinished_member(tx: Transaction, job: Job) -> Predecessor | None:
    """The first member of the job's sequential group that must end before it."""
    row = tx.one(
        "SELECT j.id, j.status, l.id, j.sequence FROM jobs j LEFT JOIN leases l ON l.job_id = j.id "
        "WHERE j.group_id = :group_id AND j.sequence < :sequence AND j.retried_by IS NULL "
        "AND (j.status IN ('QUEUED', 'RUNNING') OR l.id IS NOT NULL "
        "OR (j.status = 'FAILED' AND NOT j.permanently_failed)) ORDER BY j.sequence, j.id LIMIT 1",
        group_id=job.group_id,
        sequence=job.sequence,
    )
    return None if row is None else Predecessor(row[0], row[1], row[2] is not None, row[3])


def unfinished_job_of_schedule(tx: Transaction, job: Job) -> Predecessor | None:
    """The first job of the same schedule that must end before it."""
    row = tx.one(
        "SELECT j.id, j.status, l.id FROM jobs j LEFT JOIN leases l ON l.job_id = j.id "
        "WHERE j.schedule_id = :schedule_id AND (j.id < :id OR j.retry_of IS NOT NULL) AND j.id <> :id "
        "AND (j.status IN ('QUEUED', 'RUNNING') OR l.id IS NOT NULL) ORDER BY j.id LIMIT 1",
        schedule_id=job.schedule_id,
        id=job.id,
    )
    return None if row is None else Predecessor(row[0], row[1], row[2] is not None)
