"""Cancel: acts on the tip of a chain, in the state it finds there.

Guards CAN-01: whoever commits first wins, cancel or settle, never both; a job whose cancel was confirmed while it
was QUEUED never runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdbeat.domain import events
from holdbeat.domain.bounds import check_line
from holdbeat.domain.errors import Conflict, NotFound
from holdbeat.domain.job import Job, JobStatus
from holdbeat.store.jobs.end_runs import apply_consequences, lock_groups_and_schedules
from holdbeat.store.reads.chains import tip_of
from holdbeat.store.reads.children import descendants_of
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.reads.rows import JOB, job_of
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.outbox import Outbox

LONGEST_REASON = 500
PARENT_CANCELLED = "parent cancelled"


def cancel_job(tx: Transaction, job_id: str, reason: str | None = None) -> Job:
    """Cancels the tip of the job's chain and returns it.

    QUEUED becomes CANCELLED and will never run. RUNNING becomes CANCELLED at once; its handler is told, and its
    lease and run end when the handler does. A chain that has ended is a Conflict.
    """
    check_reason(reason)
    tip_id = tip_of(tx, job_id)
    ids = tx.one("SELECT group_id, schedule_id FROM jobs WHERE id = :id", id=tip_id)
    assert ids is not None
    lock_groups_and_schedules(tx, [ids[0]], [ids[1]])
    while True:
        tip = job_of(tx, tx.rows(f"SELECT {JOB} FROM jobs WHERE id = :id FOR UPDATE", id=tip_id)[0])
        if tip.retried_by is None:
            break
        tip_id = tip.retried_by
    if tip.status.is_terminal:
        raise Conflict(
            f"Job {job_id} has ended already: its last attempt {tip.id} is {tip.status}. There is nothing to cancel.",
            code="already_ended",
            job_id=tip.id,
        )
    cancel_jobs(tx, [tip], reason)
    return load_job(tx, tip.id)


def check_reason(reason: str | None) -> None:
    """Refuses words that one of the stores could not keep, or no list could show."""
    if reason:
        check_line(reason, "reason", LONGEST_REASON)


def cancel_jobs(tx: Transaction, jobs: Sequence[Job], reason: str | None) -> None:
    """Cancels unfinished jobs, which the caller has locked, and writes what follows for those that never ran."""
    if not jobs:
        return
    why = reason or "cancelled by request"
    outbox = Outbox(tx)
    tx.execute(
        "UPDATE jobs SET status = 'CANCELLED', finished_at = :now, cancel_requested_at = :now, cancel_reason = :reason "
        "WHERE id IN :ids",
        ids=[job.id for job in jobs],
        now=tx.now,
        reason=why,
    )
    running = [job.id for job in jobs if job.status is JobStatus.RUNNING]
    leases = tx.rows("SELECT job_id, id, worker_id FROM leases WHERE job_id IN :ids", ids=running) if running else []
    holders = {job_id: {"run_id": run_id, "worker_id": worker_id} for job_id, run_id, worker_id in leases}
    at_once = []
    for job in jobs:
        ids = {"job_id": job.id, "group_id": job.group_id, "schedule_id": job.schedule_id}
        if job.status is JobStatus.RUNNING:
            tx.record(events.CANCEL_REQUESTED, **ids, **holders.get(job.id, {}), reason=why)
            tx.wake(Topic.CANCEL)
        else:
            at_once.append(job)
        tx.record(events.JOB_CANCELLED, **ids, reason=why)
        outbox.tell_job("job.cancelled", job.id, job.webhook_url)
        job.status = JobStatus.CANCELLED
        job.finished_at = job.cancel_requested_at = tx.now
        job.cancel_reason = why
    apply_consequences(tx, at_once, outbox)
    outbox.write()
    _cancel_descendants(tx, jobs)


def _cancel_descendants(tx: Transaction, parents: Sequence[Job]) -> None:
    """Cancels what the handlers of these jobs have made and is unfinished, with all below it (WAIT-07)."""
    pending = descendants_of(tx, [job.chain_id for job in parents])
    if not pending:
        return
    jobs: list[Job] = []
    while pending:
        rows = tx.rows(f"SELECT {JOB} FROM jobs WHERE id IN :ids ORDER BY id FOR UPDATE", ids=pending)
        locked = [job_of(tx, row) for row in rows]
        jobs += [job for job in locked if not job.status.is_terminal]
        # One that failed while this waited for its lock has left its place to its retry.
        pending = [job.retried_by for job in locked if job.retried_by is not None]
    cancel_jobs(tx, jobs, PARENT_CANCELLED)


def cancel_group(tx: Transaction, group_id: str, reason: str | None = None) -> None:
    """Cancels every unfinished member of a group in one transaction (GRP-03)."""
    check_reason(reason)
    row = tx.one("SELECT status FROM job_groups WHERE id = :id FOR UPDATE", id=group_id)
    if row is None:
        raise NotFound(f"There is no job group {group_id}.", group_id=group_id)
    jobs = [
        job_of(tx, row)
        for row in tx.rows(
            f"SELECT {JOB} FROM jobs WHERE group_id = :id AND status IN ('QUEUED', 'RUNNING') ORDER BY id FOR UPDATE",
            id=group_id,
        )
    ]
    if not jobs:
        raise Conflict(
            f"Group {group_id} has nothing left to cancel: it is {row[0]}.",
            code="already_ended",
            group_id=group_id,
        )
    cancel_jobs(tx, jobs, reason or "group cancelled")
