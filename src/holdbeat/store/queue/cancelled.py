"""Marking jobs as cancelled: the row, the Event and the webhook, the same for every kind of cancel."""

from __future__ import annotations

from collections.abc import Sequence

from holdbeat.domain import events
from holdbeat.domain.job import Job, JobStatus
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.outbox import Outbox


def mark_cancelled(tx: Transaction, jobs: Sequence[Job], reason: str, outbox: Outbox) -> list[Job]:
    """Cancels unfinished jobs, which the caller has locked. The answer is those that have ended by it.

    The handler of a RUNNING one is told; the job has ended when its handler has.
    """
    if not jobs:
        return []
    tx.execute(
        "UPDATE jobs SET status = 'CANCELLED', finished_at = :now, cancel_requested_at = :now, cancel_reason = :reason "
        "WHERE id IN :ids",
        ids=[job.id for job in jobs],
        now=tx.now,
        reason=reason,
    )
    running = [job.id for job in jobs if job.status is JobStatus.RUNNING]
    leases = tx.rows("SELECT job_id, id, worker_id FROM leases WHERE job_id IN :ids", ids=running) if running else []
    holders = {job_id: {"run_id": run_id, "worker_id": worker_id} for job_id, run_id, worker_id in leases}
    at_once = []
    for job in jobs:
        ids = {"job_id": job.id, "group_id": job.group_id, "schedule_id": job.schedule_id}
        if job.status is JobStatus.RUNNING:
            tx.record(events.CANCEL_REQUESTED, **ids, **holders.get(job.id, {}), reason=reason)
            tx.wake(Topic.CANCEL)
        else:
            at_once.append(job)
        tx.record(events.JOB_CANCELLED, **ids, reason=reason)
        outbox.tell_job(events.JOB_CANCELLED, job.id, job.webhook_url)
        job.status = JobStatus.CANCELLED
        job.finished_at = job.cancel_requested_at = tx.now
        job.cancel_reason = reason
    return at_once
