"""Lists of Jobs, JobRuns, JobGroups and JobTemplates, newest first, page by page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.group import GroupStatus, JobGroup
from holdbeat.domain.job import Job, JobTemplate
from holdbeat.domain.params import check_text
from holdbeat.domain.run import RUN_STATUSES, JobRun
from holdbeat.store.reads.job_filter import (
    LIST_FILTERS,
    choices,
    error_kinds,
    job_conditions,
    refuse_unknown,
)
from holdbeat.store.reads.jobs import complete
from holdbeat.store.reads.pagination import Conditions, Cursors, Page, read_page, read_table_page
from holdbeat.store.reads.rows import (
    GROUPS,
    JOB_OF_J,
    JOBS,
    LISTED_RESULT_BYTES,
    TEMPLATES,
    short_run_columns,
    short_run_of,
)
from holdbeat.store.transaction import Row, Transaction

RUN_FILTERS = ("status", "job_id", "type", "error_kind")
GROUP_FILTERS = ("status", "name")
TEMPLATE_FILTERS = ("type", "archived")
JOB_ORDERS = ("newest", "oldest")
PAGE_CHARS = 4_000_000
"""A page of large rows ends early; its cursor leads to the others."""
_LABELLED = {
    "sqlite": "job_labels AS l CROSS JOIN jobs AS j",
    "postgres": "job_labels AS l CROSS JOIN LATERAL (SELECT * FROM jobs WHERE id = l.job_id LIMIT 1) AS j",
}
"""The jobs of a label, in the order of its index: the limit keeps PostgreSQL from walking over all jobs instead."""
_FEW = 2000
"""Up to this many rows are sorted faster than they are found among a million others."""


@dataclass(slots=True)
class ListedRun:
    run: JobRun
    type: str
    """The type of its Job, which decides what of the params may be shown."""


def list_jobs(
    tx: Transaction,
    filters: Mapping[str, Any] | None = None,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    only_tips: bool = False,
    order: str = "newest",
) -> Page[Job]:
    """Jobs, whole, in one of JOB_ORDERS; of each chain all, or its tip alone."""
    chosen = refuse_unknown(filters or {}, LIST_FILTERS)
    is_labelled = "label" in chosen
    conditions = job_conditions(tx, chosen, is_joined=is_labelled)
    if only_tips:
        conditions.add("j.retried_by IS NULL")
    source = _LABELLED[tx.dialect] if is_labelled else f"jobs AS j {_pinned(tx, conditions)}"
    key = "l.job_id" if is_labelled else "j.id"
    is_newest_first = order == "newest"
    page = read_page(
        tx,
        Cursors("jobs", chosen if is_newest_first else {**chosen, "order": order}),
        JOB_OF_J,
        source,
        JOBS.read,
        conditions,
        limit,
        cursor,
        key=key,
        is_newest_first=is_newest_first,
        most_chars=PAGE_CHARS,
    )
    complete(tx, page.items, result_bytes=LISTED_RESULT_BYTES)
    return page


def list_runs(
    tx: Transaction, filters: Mapping[str, Any] | None = None, *, limit: int | None = None, cursor: str | None = None
) -> Page[ListedRun]:
    """JobRuns, newest first. The status RUNNING finds those that have not ended."""
    chosen = refuse_unknown(filters or {}, RUN_FILTERS)
    conditions = Conditions()
    if "status" in chosen:
        _run_status(conditions, choices(chosen["status"], "status", RUN_STATUSES))
    for name in ("job_id", "type"):
        if name in chosen:
            conditions.add(f"r.{name} = :{name}", **{name: check_text(chosen[name], name, 500)})
    if "error_kind" in chosen:
        # Only a FAILED run has one.
        conditions.add("r.error_kind IN :kinds AND r.not_completed = 'FAILED'", kinds=error_kinds(chosen["error_kind"]))
    columns = f"{short_run_columns(tx.dialect, 'r.', LISTED_RESULT_BYTES)}, r.type"
    cursors = Cursors("job_runs", chosen)
    return read_page(
        tx, cursors, columns, "job_runs AS r", _listed_run, conditions, limit, cursor, key="r.id", most_chars=PAGE_CHARS
    )


def _listed_run(tx: Transaction, row: Row) -> ListedRun:
    return ListedRun(short_run_of(tx, row), row[-1])


def list_groups(
    tx: Transaction, filters: Mapping[str, Any] | None = None, *, limit: int | None = None, cursor: str | None = None
) -> Page[JobGroup]:
    """JobGroups without their members, newest first."""
    chosen = refuse_unknown(filters or {}, GROUP_FILTERS)
    conditions = Conditions()
    if "status" in chosen:
        conditions.add("status IN :status", status=choices(chosen["status"], "status", GroupStatus))
    if "name" in chosen:
        conditions.add("name = :name", name=check_text(chosen["name"], "name", 500))
    cursors = Cursors("job_groups", chosen)
    return read_table_page(tx, cursors, GROUPS, conditions, limit, cursor, most_chars=PAGE_CHARS)


def list_templates(
    tx: Transaction, filters: Mapping[str, Any] | None = None, *, limit: int | None = None, cursor: str | None = None
) -> Page[JobTemplate]:
    """JobTemplates, newest first; archived ones only if asked for (`archived`: true, or "all")."""
    chosen = refuse_unknown(filters or {}, TEMPLATE_FILTERS)
    conditions = Conditions()
    if "type" in chosen:
        conditions.add("type = :type", type=check_text(chosen["type"], "type", 500))
    archived = chosen.get("archived", False)
    if archived not in (True, False, "all"):
        raise Invalid("archived must be true, false or all.", code="invalid_filter", field="archived")
    if archived != "all":
        conditions.add(f"archived_at IS {'NOT ' if archived else ''}NULL")
    cursors = Cursors("job_templates", chosen)
    return read_table_page(tx, cursors, TEMPLATES, conditions, limit, cursor, most_chars=PAGE_CHARS)


def _run_status(conditions: Conditions, statuses: list[str]) -> None:
    # Written out, not bound, so that both planners recognise their partial index.
    ended = ", ".join(f"'{status}'" for status in statuses if status != "RUNNING")
    if set(statuses) <= {"FAILED", "SKIPPED"}:
        conditions.add(f"r.not_completed IN ({ended})")
    elif ended:
        conditions.add(f"(r.status IN ({ended}){' OR r.status IS NULL' if 'RUNNING' in statuses else ''})")
    else:
        # A run that has not ended belongs to a RUNNING job or to a lease, and there are few of either.
        conditions.add(
            "r.status IS NULL AND r.job_id IN (SELECT id FROM jobs INDEXED BY jobs_running WHERE status = 'RUNNING' "
            "UNION SELECT job_id FROM leases WHERE job_id IS NOT NULL)"
        )


def _pinned(tx: Transaction, conditions: Conditions) -> str:
    """SQLite keeps no statistics: it is told where few rows are to be sorted instead of many to be searched."""
    if tx.dialect == "sqlite" and len(conditions.parts) >= 1:
        if conditions.parts[0] == "j.status = 'RUNNING'":
            return "INDEXED BY jobs_running"
        if conditions.parts[0] == "j.status = 'QUEUED'":
            row = tx.one(
                "SELECT count(*) FROM "
                "(SELECT 1 FROM jobs INDEXED BY jobs_queue WHERE status = 'QUEUED' AND priority >= 0 LIMIT :few) AS f",
                few=_FEW + 1,
            )
            if row is not None and row[0] <= _FEW:
                return "INDEXED BY jobs_queue"
    return ""
