"""Children that end with their parent: the unfinished jobs below a chain that was cancelled or skipped (WAIT-07)."""

from __future__ import annotations

from collections.abc import Sequence

from holdbeat.domain.job import Job
from holdbeat.store.queue.cancelled import mark_cancelled
from holdbeat.store.reads.children import descendants_of
from holdbeat.store.reads.rows import JOB, job_of
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.outbox import Outbox

PARENT_CANCELLED = "parent cancelled"


def cancel_descendants(tx: Transaction, chain_ids: Sequence[str], outbox: Outbox) -> list[Job]:
    """Cancels what the handlers of these chains have made and is unfinished, with all below it. The answer is the jobs
    that have ended by it."""
    pending = descendants_of(tx, chain_ids)
    jobs: list[Job] = []
    while pending:
        rows = tx.rows(f"SELECT {JOB} FROM jobs WHERE id IN :ids ORDER BY id FOR UPDATE", ids=pending)
        locked = [job_of(tx, row) for row in rows]
        jobs += [job for job in locked if not job.status.is_terminal]
        # One that failed while this waited for its lock has left its place to its retry.
        pending = [job.retried_by for job in locked if job.retried_by is not None]
    return mark_cancelled(tx, jobs, PARENT_CANCELLED, outbox)
