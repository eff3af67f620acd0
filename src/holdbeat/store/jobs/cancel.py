"""Cancel: acts on the tip of a chain, in the state it finds there.

Guards CAN-01: the first commit wins, cancel or settle, never both; a job whose cancel was confirmed while it was QUEUED
never runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdbeat.domain.bounds import check_line
from holdbeat.domain.errors import Conflict
from holdbeat.domain.job import Job, JobStatus
from holdbeat.schemas.field_bounds import LONGEST_REASON
from holdbeat.store.jobs.end_runs import apply_consequences, lock_groups_and_schedules
from holdbeat.store.queue.cancelled import mark_cancelled
from holdbeat.store.reads.chains import tip_of
from holdbeat.store.reads.jobs import load_job, locked_jobs
from holdbeat.store.reads.rows import GROUPS, JOBS
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.outbox import Outbox


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
        (tip,) = locked_jobs(tx, [tip_id])
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
    if reason is not None:
        check_line(reason, "reason", LONGEST_REASON)


def cancel_jobs(tx: Transaction, jobs: Sequence[Job], reason: str | None) -> None:
    """Cancels unfinished jobs, which the caller has locked, with their children, and writes what follows."""
    if not jobs:
        return
    # The first job of a chain that has not started has no children.
    parents = [job.chain_id for job in jobs if job.status is JobStatus.RUNNING or job.root_id is not None]
    outbox = Outbox(tx)
    at_once = mark_cancelled(tx, jobs, reason or "cancelled by request", outbox)
    apply_consequences(tx, at_once, outbox, stopped=parents)
    outbox.write()


def cancel_group(tx: Transaction, group_id: str, reason: str | None = None) -> None:
    """Cancels every unfinished member of a group in one transaction (GRP-03)."""
    check_reason(reason)
    row = tx.one("SELECT status FROM job_groups WHERE id = :id FOR UPDATE", id=group_id)
    if row is None:
        raise GROUPS.unknown(group_id)
    members = "WHERE group_id = :id AND status IN ('QUEUED', 'RUNNING') ORDER BY id FOR UPDATE"
    jobs = JOBS.all(tx, members, id=group_id)
    if not jobs:
        raise Conflict(
            f"Group {group_id} has nothing left to cancel: it is {row[0]}.",
            code="already_ended",
            group_id=group_id,
        )
    cancel_jobs(tx, jobs, reason or "group cancelled")
