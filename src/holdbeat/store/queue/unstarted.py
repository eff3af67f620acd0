"""Ends of jobs that never started, because of something else that happened: cancelled, or skipped with a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.job import JobStatus
from holdbeat.domain.webhook import RUN_SKIPPED
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.outbox import Outbox


@dataclass(frozen=True, slots=True)
class EndedJob:
    """The part of a job that has just ended that its consequences need."""

    id: str
    status: JobStatus
    is_awaited: bool
    group_id: str | None
    schedule_id: str | None
    root_id: str | None
    """Of a later job of its chain: an earlier one has run, and may have children."""


def cancel_unstarted(tx: Transaction, ids: Sequence[str], reason: str, outbox: Outbox, **facts: Any) -> list[EndedJob]:
    """Cancels QUEUED jobs, which the caller has locked. `facts` go into their Events."""
    rows = tx.rows(
        "UPDATE jobs SET status = 'CANCELLED', finished_at = :now, cancel_requested_at = :now, cancel_reason = :reason "
        "WHERE id IN :ids RETURNING id, is_awaited, group_id, schedule_id, root_id, webhook_url",
        ids=ids,
        now=tx.now,
        reason=reason,
    )
    ended = []
    for job_id, is_awaited, group_id, schedule_id, root_id, webhook_url in sorted(rows, key=lambda row: str(row[0])):
        tx.record(
            events.JOB_CANCELLED, job_id=job_id, group_id=group_id, schedule_id=schedule_id, reason=reason, **facts
        )
        outbox.tell_job(events.JOB_CANCELLED, job_id, webhook_url)
        ended.append(EndedJob(job_id, JobStatus.CANCELLED, bool(is_awaited), group_id, schedule_id, root_id))
    return ended


def skip_unstarted(tx: Transaction, ids: Sequence[str], reason: str, outbox: Outbox, **facts: Any) -> list[EndedJob]:
    """Skips QUEUED jobs, which the caller has locked: each gets a run that says why. `facts` go into their Events."""
    rows = tx.rows(
        "UPDATE jobs SET status = 'SKIPPED', started_at = :now, finished_at = :now, cancel_reason = :reason "
        "WHERE id IN :ids "
        "RETURNING id, type, resource, template_id, params, webhook_url, is_awaited, group_id, schedule_id, root_id",
        ids=ids,
        now=tx.now,
        reason=reason,
    )
    run_ids = tx.new_ids(len(rows))
    tx.insert(
        "job_runs",
        (
            "id", "job_id", "type", "resource", "template_id", "params_snapshot", "fence", "started_at", "finished_at",
            "status", "error",
        ),
        [
            (run_id, row[0], row[1], row[2], row[3], row[4], 0, tx.now, tx.now, "SKIPPED", reason)
            for row, run_id in zip(rows, run_ids, strict=True)
        ],
    )  # fmt: skip
    ended = []
    for (job_id, *_, webhook_url, is_awaited, group_id, schedule_id, root_id), run_id in zip(
        rows, run_ids, strict=True
    ):
        tx.record(
            events.RUN_ENDED, job_id=job_id, run_id=run_id, group_id=group_id, schedule_id=schedule_id,
            status="SKIPPED", reason=reason, **facts,
        )  # fmt: skip
        outbox.tell_job(RUN_SKIPPED, job_id, webhook_url)
        ended.append(EndedJob(job_id, JobStatus.SKIPPED, bool(is_awaited), group_id, schedule_id, root_id))
    return ended
