"""Operations on jobs and their queue: list, edit while queued, cancel, retry, move, explain, pause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdbeat.domain.bounds import check_flag, check_line, check_whole_number
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import SHELL
from holdbeat.domain.redaction import kept_params
from holdbeat.domain.views import event_json, form, job_json
from holdbeat.operations.checks import (
    check_admin,
    check_call,
    check_filter,
    check_texts,
    checked_fields,
    guard_shell_retry,
    id_of,
    page_json,
    several,
)
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.schemas.jobs import BulkResult, Pause
from holdbeat.store.jobs import bulk, cancel, edit_job, manual_retry
from holdbeat.store.queue import move
from holdbeat.store.queue.move import reorder
from holdbeat.store.queue.pauses import list_pauses, pause, resume
from holdbeat.store.reads import list_jobs as job_lists
from holdbeat.store.reads.event_log import events_of_job
from holdbeat.store.reads.find_jobs import search_jobs
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.reads.pagination import Cursors, Page
from holdbeat.store.reads.queue_view import queue
from holdbeat.store.transaction import Transaction

EVENT_PAGE = 500


@reads
def list_jobs(
    tx: Transaction,
    context: OperationContext,
    *,
    q: str | None = None,
    order: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
    **filters: Any,
) -> Any:
    """List jobs, the newest first unless `order` says otherwise."""
    if order not in (None, *job_lists.JOB_ORDERS):
        raise Invalid("order must be newest or oldest.", code="unknown_choice", field="order")
    filters |= {"status": several(filters.get("status")), "label": filters.get("label") or None}
    if q:
        if order == "oldest":
            raise Invalid(
                "A search by text goes from the newest job back. Leave out order, or search with filters instead of q.",
                code="invalid_filter",
                field="order",
            )
        return page_json(search_jobs(tx, check_line(q, "q", 200), filters, limit=limit, cursor=cursor), job_json)
    page = job_lists.list_jobs(tx, filters, limit=limit, cursor=cursor, order=order or "newest")
    return page_json(page, job_json)


@reads
def get_job(tx: Transaction, context: OperationContext, job_id: str) -> Any:
    """Read one job, with its run."""
    return job_json(load_job(tx, id_of(tx, job_id, "job")))


@writes
def update_job(tx: Transaction, context: OperationContext, job_id: str, changes: Mapping[str, Any]) -> Any:
    """Change priority, params, not_before or labels of a job that is still QUEUED; not_before moves or ends a sleep."""
    changes = checked_fields(changes, edit_job.CHANGEABLE)
    job_id = id_of(tx, job_id, "job")
    job = load_job(tx, job_id)
    if job.type == SHELL:
        check_admin(context, "Changing a shell job")
    check_call(context, job.type, changes.get("params"))
    if job.type == "http" and isinstance(changes.get("params"), dict):
        changes = {**changes, "params": kept_params(changes["params"], job.params)}
    return job_json(edit_job.change_job(tx, job_id, changes))


@writes
def cancel_job(tx: Transaction, context: OperationContext, job_id: str, reason: str | None = None) -> Any:
    """Cancel a job, or its current retry; the answer shows which."""
    return job_json(cancel.cancel_job(tx, id_of(tx, job_id, "job"), reason))


@writes
def cancel_jobs(
    tx: Transaction,
    context: OperationContext,
    filter: Mapping[str, Any],
    *,
    dry_run: bool = False,
    reason: str | None = None,
) -> Any:
    """Cancel every unfinished job that matches a filter."""
    filters = check_filter(filter)
    is_dry_run = check_flag(dry_run, "dry_run")
    return form(bulk.cancel_where(tx, filters, reason, dry_run=is_dry_run), BulkResult)


@writes
def retry_job(
    tx: Transaction,
    context: OperationContext,
    job_id: str,
    *,
    steps: str | None = None,
    from_step: str | None = None,
) -> Any:
    """Retry a job that failed, was skipped or was cancelled: a new job at the end of its priority."""
    if steps not in (None, "keep", "fresh"):
        raise Invalid("steps must be keep or fresh.", code="unknown_choice", field="steps")
    if from_step is not None and (steps is not None or not isinstance(from_step, str)):
        raise Invalid("from_step is the name of a step, and is given without steps.", field="from_step")
    job_id = id_of(tx, job_id, "job")
    guard_shell_retry(tx, context, job_id)
    is_fresh = steps == "fresh"
    retry = manual_retry.retry_job(tx, job_id, is_fresh=is_fresh, from_step=from_step)
    return job_json(retry)


@writes
def rerun_job(tx: Transaction, context: OperationContext, job_id: str, *, from_step: str | None = None) -> Any:
    """Run an ended chain again, from its start or from a step: a new chain with copies of the steps before that one."""
    if from_step is not None and not isinstance(from_step, str):
        raise Invalid("from_step is the name of a step.", code="invalid_text", field="from_step")
    job_id = id_of(tx, job_id, "job")
    guard_shell_retry(tx, context, job_id)
    return job_json(manual_retry.rerun_job(tx, job_id, from_step))


@writes
def move_job(
    tx: Transaction,
    context: OperationContext,
    job_id: str,
    *,
    before: str | None = None,
    after: str | None = None,
    to: str | int | None = None,
) -> Any:
    """Move a QUEUED job within its priority."""
    neighbours: dict[str, str] = {}
    for name, value in (("before", before), ("after", after)):
        if value is not None and not isinstance(value, str):
            raise Invalid(f"{name} must be the id of a job.", code="invalid_id", field=name)
        if value is not None:
            neighbours[name] = id_of(tx, value, "job")
    return job_json(move.move_job(tx, id_of(tx, job_id, "job"), to=to, **neighbours))


@reads
def explain_job(tx: Transaction, context: OperationContext, job_id: str) -> Any:
    """Explain why a job waits, runs or ended as it did, and when it will probably start."""
    from holdbeat.observe.explain import explain_job as explain

    return explain(tx, id_of(tx, job_id, "job"))


@reads
def job_events(
    tx: Transaction, context: OperationContext, job_id: str, *, limit: int | None = None, cursor: str | None = None
) -> Any:
    """List the scheduler's decisions about a job, in order."""
    count = check_whole_number(EVENT_PAGE if limit is None else limit, "limit", 1, EVENT_PAGE)
    job_id = id_of(tx, job_id, "job")
    load_job(tx, job_id)
    cursors = Cursors("job_events", {"job_id": job_id})
    last = cursors.read(cursor, int)
    events = [logged.event for logged in events_of_job(tx, job_id, count + 1, after=last[0] if last else 0)]
    page = events[:count]
    return page_json(Page(page, cursors.write(page[-1].id) if len(events) > count else None), event_json)


MOST_REORDERED = 10_000


@reads
def get_queue(
    tx: Transaction,
    context: OperationContext,
    *,
    resource: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Any:
    """Read the queue in the order in which jobs will be claimed, with what blocks each job."""
    page = queue(tx, resource, limit=limit, cursor=cursor)
    items = [{**job_json(entry.job), "blocked_by": list(entry.blocked_by)} for entry in page.items]
    return {"items": items, "next_cursor": page.next_cursor, **_pauses_json(tx)}


@writes
def reorder_queue(tx: Transaction, context: OperationContext, job_ids: Sequence[str]) -> Any:
    """Put QUEUED jobs of one priority into the listed order, on the places that they hold together."""
    jobs = reorder(tx, check_texts(job_ids, "job_ids", "ids of jobs", MOST_REORDERED))
    return {"items": [job_json(job) for job in jobs]}


@writes
def pause_queue(
    tx: Transaction, context: OperationContext, resource: str | None = None, *, reason: str | None = None
) -> Any:
    """Start no more jobs, of one resource or of all. Running jobs continue."""
    pause(tx, resource, by=context.caller, reason=reason)
    return _pauses_json(tx)


@writes
def resume_queue(tx: Transaction, context: OperationContext, resource: str | None = None) -> Any:
    """End a pause: that of one resource, or that of everything."""
    resume(tx, resource, by=context.caller)
    return _pauses_json(tx)


def _pauses_json(tx: Transaction) -> dict[str, Any]:
    return {"paused": [form(pause, Pause) for pause in list_pauses(tx)]}
