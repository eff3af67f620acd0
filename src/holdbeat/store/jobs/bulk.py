"""Cancelling and retrying many at once, by a filter.

Guards against the slip of the hand: an empty filter is refused, and a dry run shows what would be done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import JobStatus
from holdbeat.store.jobs.cancel import cancel_jobs, check_reason
from holdbeat.store.jobs.end_runs import lock_groups_and_schedules
from holdbeat.store.jobs.manual_retry import retry_jobs, with_free_keys
from holdbeat.store.reads.chains import tips_of
from holdbeat.store.reads.job_filter import (
    BULK_FILTERS,
    error_kinds,
    job_conditions,
    one_or_several,
    refuse_unknown,
)
from holdbeat.store.reads.jobs import locked_unfinished
from holdbeat.store.reads.rows import JOB_OF_J, JOBS
from holdbeat.store.transaction import Transaction


@dataclass(slots=True)
class BulkResult:
    matched: int
    """Jobs that the filter finds among those that can be cancelled, or retried, at all."""
    changed: int
    ids: list[str]
    """Of the jobs that were, or in a dry run would be, cancelled; or of the new jobs (in a dry run: the old ones)."""


def cancel_where(
    tx: Transaction, filter: Mapping[str, Any], reason: str | None = None, dry_run: bool = False
) -> BulkResult:
    """Cancels every unfinished job that the filter finds, in one transaction. `ids` stand for their chains."""
    check_reason(reason)
    filters = _checked(filter, BULK_FILTERS)
    if "ids" in filters:
        filters["ids"] = tips_of(tx, one_or_several(filters["ids"], "ids"))
        if not filters["ids"]:
            return BulkResult(0, 0, [])
    conditions = job_conditions(tx, filters)
    conditions.add("j.status IN ('QUEUED', 'RUNNING')")
    candidates = tx.rows(
        f"SELECT j.id, j.group_id, j.schedule_id FROM jobs AS j WHERE {conditions.where} ORDER BY j.id",
        **conditions.params,
    )
    ids = [row[0] for row in candidates]
    if dry_run or not ids:
        return BulkResult(len(ids), 0, ids)
    lock_groups_and_schedules(tx, (row[1] for row in candidates), (row[2] for row in candidates))
    jobs = locked_unfinished(tx, ids)
    cancel_jobs(tx, jobs, reason)
    return BulkResult(len(ids), len(jobs), [job.id for job in jobs])


def retry_where(
    tx: Transaction, filter: Mapping[str, Any], dry_run: bool = False, *, with_own_shell_jobs: bool = True
) -> BulkResult:
    """Retries every ended job that the filter finds: FAILED and SKIPPED ones, CANCELLED ones only by that status.

    A job that was tried again already, by itself or by a person, is left out, so that doing it twice does not double
    the work; unless `ids` (of jobs or runs) name it. `with_own_shell_jobs` includes shell jobs without a template.
    """
    filters = _checked(filter, (*BULK_FILTERS, "error_kind"))
    named = "ids" in filters
    if named:
        filters["ids"] = _jobs_of(tx, one_or_several(filters["ids"], "ids"))
        if not filters["ids"]:
            return BulkResult(0, 0, [])
    elif "status" not in filters:
        filters["status"] = [JobStatus.FAILED, JobStatus.SKIPPED]
    kinds = filters.pop("error_kind", None)
    if not dry_run:
        # On PostgreSQL two requests at once must not both find it without a retry.
        tx.lock_pools(["bulk_retry"])
    conditions = job_conditions(tx, filters)
    conditions.add("j.status IN ('FAILED', 'SKIPPED', 'CANCELLED')")
    if not with_own_shell_jobs:
        conditions.add("(j.type <> 'shell' OR j.template_id IS NOT NULL)")
    conditions.add("NOT EXISTS (SELECT 1 FROM job_runs AS r WHERE r.job_id = j.id AND r.status IS NULL)")
    if kinds is not None:
        conditions.add(
            "EXISTS (SELECT 1 FROM job_runs AS r WHERE r.job_id = j.id AND r.error_kind IN :kinds)",
            kinds=error_kinds(kinds),
        )
    if not named:
        conditions.add(
            "j.retried_by IS NULL AND NOT EXISTS "
            "(SELECT 1 FROM jobs AS m WHERE m.retry_of = j.id AND m.retry_kind = 'manual')"
        )
    rows = tx.rows(
        f"SELECT {JOB_OF_J} FROM jobs AS j WHERE {conditions.where} ORDER BY j.id{'' if dry_run else ' FOR UPDATE'}",
        **conditions.params,
    )
    jobs = [JOBS.read(tx, row) for row in rows]
    if dry_run:
        return BulkResult(len(jobs), 0, [job.id for job in jobs])
    retries = retry_jobs(tx, with_free_keys(tx, jobs))
    return BulkResult(len(jobs), len(retries), [job.id for job in retries])


def _checked(filter: Mapping[str, Any], allowed: Sequence[str]) -> dict[str, Any]:
    filters = refuse_unknown(filter, allowed)
    if not filters:
        raise Invalid(
            f"An empty filter would mean all jobs. Say which: by {', '.join(allowed)}.",
            code="empty_filter",
            field="filter",
        )
    return filters


def _jobs_of(tx: Transaction, ids: Sequence[str]) -> list[str]:
    """Job ids for ids that may be of jobs or of runs."""
    runs = tx.rows("SELECT id, job_id FROM job_runs WHERE id IN :ids", ids=ids)
    of_runs: dict[str, str] = {row[0]: row[1] for row in runs}
    return sorted({of_runs.get(id_, id_) for id_ in ids})
