"""Operations on the queue: read it in its order, reorder it, pause and resume it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdbeat.domain.views import form, job_json
from holdbeat.operations.checks import check_texts
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.schemas.jobs import Pause
from holdbeat.store.queue.move import reorder
from holdbeat.store.queue.pauses import list_pauses, pause, resume
from holdbeat.store.reads.queue_view import queue

if TYPE_CHECKING:
    from holdbeat.store.transaction import Transaction

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
    """Reorder QUEUED jobs of one priority: they exchange their places among themselves, in the order listed."""
    jobs = reorder(tx, check_texts(job_ids, "job_ids", "ids of jobs", MOST_REORDERED))
    return {"items": [job_json(job) for job in jobs]}


@writes
def pause_queue(
    tx: Transaction, context: OperationContext, resource: str | None = None, *, reason: str | None = None
) -> Any:
    """Start no more jobs, of one resource or of all; running jobs go on."""
    pause(tx, resource, by=context.caller, reason=reason)
    return _pauses_json(tx)


@writes
def resume_queue(tx: Transaction, context: OperationContext, resource: str | None = None) -> Any:
    """End a pause: that of one resource, or that of everything."""
    resume(tx, resource, by=context.caller)
    return _pauses_json(tx)


def _pauses_json(tx: Transaction) -> dict[str, Any]:
    return {"paused": [form(one, Pause) for one in list_pauses(tx)]}
