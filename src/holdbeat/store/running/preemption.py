"""Preemption by consent as rows: a lease says for whom its handler was told to end (LIM-13).

It is decided while no claim is under way. The run ends as at a shutdown, and what preempts takes the slot by its
priority at the next claim.
"""

from __future__ import annotations

from holdbeat.domain import events
from holdbeat.domain.capacity import Capacity, Interruptible, Place, to_interrupt
from holdbeat.domain.job import Job
from holdbeat.domain.reservation import Reservation
from holdbeat.store.pausing import wait_for_claims
from holdbeat.store.reads.blockers import Blocker, Blockers
from holdbeat.store.reads.rows import JOBS, RESERVATIONS
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction

MANY = 100
"""So many that preempt are looked at in one go."""

_JOBS = "INDEXED BY jobs_preempting WHERE status = 'QUEUED' AND hold = 0 AND preemption >= 2"
_REQUESTS = "WHERE status = 'ACTIVE' AND granted_at IS NULL AND preempts = :yes AND expires_at > :now"
_RUNNING = (
    "SELECT l.id, l.job_id, j.priority, l.acquired_at, l.resource, l.type, l.partition, l.weight FROM leases l "
    "JOIN jobs j ON j.id = l.job_id WHERE l.preempted_for IS NULL AND j.status = 'RUNNING' AND j.preemption IN (1, 3)"
)


def wants_to_preempt(tx: Transaction) -> bool:
    """Whether anything that may preempt waits for a slot."""
    requests = f"EXISTS (SELECT 1 FROM direct_reservations {_REQUESTS})"
    row = tx.one(f"SELECT EXISTS (SELECT 1 FROM jobs {_JOBS}), {requests}", yes=True, now=tx.now)
    return row is not None and bool(row[0] or row[1])


def preempt(tx: Transaction) -> int:
    """Tells preemptible runs to end for those that preempt and find no slot; returns how many were told."""
    wait_for_claims(tx)
    state = Blockers(tx)
    first = "ORDER BY requested_at, id LIMIT :many"
    waiting: list[Job | Reservation] = []
    waiting += RESERVATIONS.all(tx, f"{_REQUESTS} {first}", yes=True, now=tx.now, many=MANY)
    waiting += JOBS.all(tx, f"{_JOBS} ORDER BY priority DESC, position, created_at, id LIMIT :many", many=MANY)
    served = {row[0] for row in tx.rows("SELECT preempted_for FROM leases WHERE preempted_for IS NOT NULL")}
    running = [
        Interruptible(row[0], row[1], row[2], tx.instant(row[3]), state.capacity.demand(row[4], row[5], row[6], row[7]))
        for row in tx.rows(_RUNNING)
    ]
    count = 0
    for work in waiting:
        if not running:
            break
        if work.id in served or not _lacks_slots_alone(state, work):
            continue
        priority = work.priority if isinstance(work, Job) else None
        chosen = to_interrupt(_lacking(state.capacity, work), priority, running)
        if chosen:
            _tell(tx, work, chosen)
            count += len(chosen)
            running = [run for run in running if run not in chosen]
    return count


def _lacks_slots_alone(state: Blockers, work: Job | Reservation) -> bool:
    if isinstance(work, Job):
        return state.of(work) == (Blocker.RESOURCE_FULL,)
    kind = work.resource, work.type, work.partition
    return state.capacity.throttled_until(*kind) is None and state.capacity.is_full(*kind, work.weight)


def _lacking(capacity: Capacity, work: Job | Reservation) -> dict[Place, int]:
    """How many slots are missing where."""
    demand = capacity.demand(work.resource, work.type, work.partition, work.weight)
    spare = capacity.spare_slots(work.resource, work.type, work.partition)
    return {place: needed - spare[place] for place, needed in demand.items() if place in spare}


def _tell(tx: Transaction, work: Job | Reservation, chosen: list[Interruptible]) -> None:
    tx.execute(
        "UPDATE leases SET preempted_for = :work WHERE id IN :ids", work=work.id, ids=[run.lease_id for run in chosen]
    )
    for run in chosen:
        tx.record(events.JOB_PREEMPTED, job_id=run.job_id, run_id=run.lease_id, preempted_for=work.id, type=work.type)
    tx.wake(Topic.CANCEL)


def preempted_leases(tx: Transaction, worker_id: str) -> list[str]:
    """The leases of a worker whose handlers are to end for somebody else."""
    rows = tx.rows("SELECT id FROM leases WHERE worker_id = :id AND preempted_for IS NOT NULL", id=worker_id)
    return [row[0] for row in rows]
