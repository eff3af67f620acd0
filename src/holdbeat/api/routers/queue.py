"""The queue: read in its order, reordered, paused."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import CURSOR, LIMIT, Parameter, Routes
from holdbeat.api.schemas.jobs import JobList, PauseList, PauseRequest, QueuePage, ReorderRequest, ResumeRequest
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import Invalid
from holdbeat.domain.views import job_json
from holdbeat.store.queue.move import reorder
from holdbeat.store.queue.pauses import Pause, list_pauses, pause, resume
from holdbeat.store.reads.pagination import Page
from holdbeat.store.reads.queue_view import QueueEntry, queue
from holdbeat.store.transaction import Transaction

routes = Routes("queue")
MOST_REORDERED = 10_000


@routes.get(
    "/api/queue",
    answers={200: QueuePage},
    parameters=(
        Parameter("resource", "Only jobs on this resource.", {"type": "string", "minLength": 1, "maxLength": 200}),
        LIMIT,
        CURSOR,
    ),
)
async def get_queue(call: ApiRequest) -> Response:
    """Read the queue in the order in which it will be claimed, with what keeps each job waiting."""
    page, pauses = await call.service.store.read(_queue, call.text("resource"), call.limit, call.cursor)
    items = [{**job_json(entry.job), "blocked_by": list(entry.blocked_by)} for entry in page.items]
    return answer({"items": items, "next_cursor": page.next_cursor, "paused": pauses})


def _queue(
    tx: Transaction, resource: str | None, limit: int, cursor: str | None
) -> tuple[Page[QueueEntry], list[dict[str, Any]]]:
    return queue(tx, resource, limit=limit, cursor=cursor), _pauses(tx)


def _pauses(tx: Transaction) -> list[dict[str, Any]]:
    return [_pause_json(each) for each in list_pauses(tx)]


def _pause_json(each: Pause) -> dict[str, Any]:
    return {
        "resource": each.resource,
        "paused_at": iso(each.paused_at),
        "paused_by": each.paused_by,
        "reason": each.reason,
    }


@routes.post("/api/queue/reorder", body=ReorderRequest, answers={200: JobList}, refuses=(404, 409))
async def reorder_queue(call: ApiRequest) -> Response:
    """Let QUEUED jobs of one priority stand in the order listed, on the places that they hold together."""
    given = await call.fields(("job_ids",), required=("job_ids",))
    ids = given["job_ids"]
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids) or len(ids) > MOST_REORDERED:
        raise Invalid("job_ids must be a list of ids of jobs.", code="invalid_id", field="job_ids")
    jobs = await call.service.store.write(reorder, ids)
    return answer({"items": [job_json(job) for job in jobs]})


@routes.post("/api/queue/pause", body=PauseRequest, body_optional=True, answers={200: PauseList})
async def pause_queue(call: ApiRequest) -> Response:
    """Start no more jobs, of one resource or of all; what runs goes on."""
    given = await call.fields(("resource", "reason"), may_be_empty=True)
    return answer({"paused": await call.service.store.write(_pause, given, call.caller)})


def _pause(tx: Transaction, given: dict[str, Any], by: str | None) -> list[dict[str, Any]]:
    pause(tx, given.get("resource"), by=by, reason=given.get("reason"))
    return _pauses(tx)


@routes.post("/api/queue/resume", body=ResumeRequest, body_optional=True, answers={200: PauseList})
async def resume_queue(call: ApiRequest) -> Response:
    """End a pause: that of one resource, or that of everything."""
    given = await call.fields(("resource",), may_be_empty=True)
    return answer({"paused": await call.service.store.write(_resume, given, call.caller)})


def _resume(tx: Transaction, given: dict[str, Any], by: str | None) -> list[dict[str, Any]]:
    resume(tx, given.get("resource"), by=by)
    return _pauses(tx)
