"""Jobs: submitted, found, changed while they wait, cancelled, retried, moved, explained."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import CURSOR, LIMIT, Parameter, Routes
from holdbeat.api.schemas.base import CancelRequest
from holdbeat.api.schemas.jobs import (
    BulkCancelRequest,
    BulkResult,
    Explanation,
    Job,
    JobBatchRequest,
    JobChange,
    JobList,
    JobPage,
    JobRequest,
    MoveRequest,
)
from holdbeat.api.schemas.others import EventPage
from holdbeat.api.submitting import needs_admin, read_submission, read_submissions, submit_for, with_header_key
from holdbeat.domain.api_key import Scope
from holdbeat.domain.bounds import check_line
from holdbeat.domain.errors import Invalid
from holdbeat.domain.events import Event
from holdbeat.domain.job import Job as DomainJob
from holdbeat.domain.job import JobStatus
from holdbeat.domain.views import event_json, job_json, kept_params
from holdbeat.handlers.shell import SHELL
from holdbeat.observe.explain import explain_job as explain
from holdbeat.store.queue.bulk import BulkResult as BulkOutcome
from holdbeat.store.queue.bulk import cancel_where
from holdbeat.store.queue.cancel import cancel_job as cancel
from holdbeat.store.queue.edit_job import CHANGEABLE, change_job
from holdbeat.store.queue.manual_retry import retry_job as retry
from holdbeat.store.queue.move import move_job as move
from holdbeat.store.reads.event_log import events_of_job
from holdbeat.store.reads.jobs import load_job, load_jobs
from holdbeat.store.reads.list_jobs import list_jobs as list_
from holdbeat.store.reads.pagination import Cursors, Page
from holdbeat.store.transaction import Transaction

routes = Routes("jobs")

_KEY = Parameter(
    "Idempotency-Key",
    "The same key with the same request finds the same job again; with another request it is a 409.",
    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
    place="header",
)
_TEXT = {"type": "string", "minLength": 1, "maxLength": 500}
FILTERS = (
    Parameter(
        "status", "Only jobs of this status; several by repeating it.", {"enum": list(JobStatus)}, is_multiple=True
    ),
    Parameter("type", "Only jobs of this type.", _TEXT),
    Parameter("resource", "Only jobs on this resource.", _TEXT),
    Parameter("schedule_id", "Only jobs that this schedule made.", _TEXT),
    Parameter("group_id", "Only members of this group.", _TEXT),
    Parameter("template_id", "Only jobs made from this template.", _TEXT),
    Parameter("label", "Only jobs with this label, as name=value; several by repeating it.", _TEXT, is_multiple=True),
)


@routes.post("/api/jobs", body=JobRequest, answers={200: Job, 201: Job}, refuses=(409,), parameters=(_KEY,))
async def submit_job(call: ApiRequest) -> Response:
    """Submit a job.

    201 if it is new; 200 if its idempotency key found the job that was there already.
    """
    given = await call.object()
    submission = read_submission(call, with_header_key(call, given))
    enqueued = await submit_for(call, [submission])
    job = enqueued.jobs[0]
    if enqueued.known:
        job = await call.service.store.read(load_job, job.id)
    return answer(job_json(job), 200 if enqueued.known else 201, {"Location": f"/api/jobs/{job.id}"})


@routes.post("/api/jobs/batch", body=JobBatchRequest, answers={200: JobList, 201: JobList}, refuses=(409,))
async def submit_jobs(call: ApiRequest) -> Response:
    """Submit several jobs in one transaction: all or none."""
    given = await call.fields(("jobs",), required=("jobs",))
    enqueued = await submit_for(call, read_submissions(call, given["jobs"]))
    jobs = enqueued.jobs
    if enqueued.known:
        # Those that were there already may have run since.
        known = {job.id: job for job in await call.service.store.read(load_jobs, sorted(enqueued.known))}
        jobs = [known.get(job.id, job) for job in jobs]
    return answer({"items": [job_json(job) for job in jobs]}, 201 if enqueued.any_new else 200)


@routes.get("/api/jobs", answers={200: JobPage}, parameters=(*FILTERS, LIMIT, CURSOR))
async def list_jobs(call: ApiRequest) -> Response:
    """List jobs, the newest first."""
    page = await call.service.store.read(list_, job_filters(call), limit=call.limit, cursor=call.cursor)
    return answer({"items": [job_json(job) for job in page.items], "next_cursor": page.next_cursor})


def job_filters(call: ApiRequest) -> dict[str, Any]:
    """The filters of the query, as the store takes them."""
    return {
        "status": [word for text in call.texts("status") for word in text.split(",")] or None,
        "label": call.texts("label") or None,
        **{name: call.text(name) for name in ("type", "resource", "schedule_id", "group_id", "template_id")},
    }


@routes.post("/api/jobs/cancel", body=BulkCancelRequest, answers={200: BulkResult})
async def cancel_jobs(call: ApiRequest) -> Response:
    """Cancel every unfinished job that a filter finds."""
    given = await call.fields(("filter", "dry_run", "reason"), required=("filter",))
    result = await call.service.store.write(
        cancel_where, read_filter(given), _reason(given), dry_run=read_flag(given, "dry_run")
    )
    return answer(bulk_json(result))


def read_filter(given: dict[str, Any]) -> dict[str, Any]:
    found = given["filter"]
    if not isinstance(found, dict):
        raise Invalid("filter must be an object.", code="invalid_filter", field="filter")
    return found


def read_flag(given: dict[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise Invalid(f"{name} must be true or false.", code="invalid_flag", field=name)
    return value


def bulk_json(result: BulkOutcome) -> dict[str, Any]:
    return {"matched": result.matched, "changed": result.changed, "ids": result.ids}


def _reason(given: dict[str, Any]) -> str | None:
    reason = given.get("reason")
    return None if reason is None else check_line(reason, "reason", 500)


@routes.get("/api/jobs/{id}", answers={200: Job})
async def get_job(call: ApiRequest) -> Response:
    """Read one job, with its run."""
    return answer(job_json(await call.service.store.read(load_job, call.id("job"))))


@routes.patch("/api/jobs/{id}", body=JobChange, answers={200: Job}, refuses=(409,))
async def update_job(call: ApiRequest) -> Response:
    """Change priority, params, not_before or labels of a job that is still QUEUED."""
    job_id = call.id("job")
    changes = await call.fields(CHANGEABLE)
    is_admin = call.scope.covers(Scope.ADMIN)
    return answer(job_json(await call.service.store.write(_change, job_id, changes, is_admin)))


def _change(tx: Transaction, job_id: str, changes: dict[str, Any], is_admin: bool) -> DomainJob:
    job = load_job(tx, job_id)
    if job.type == SHELL and not is_admin:
        raise needs_admin("Changing a shell job")
    if job.type == "http" and isinstance(changes.get("params"), dict):
        changes = {**changes, "params": kept_params(changes["params"], job.params)}
    return change_job(tx, job_id, changes)


@routes.post("/api/jobs/{id}/cancel", body=CancelRequest, body_optional=True, answers={200: Job}, refuses=(409,))
async def cancel_job(call: ApiRequest) -> Response:
    """Cancel a job, or the retry that stands for it now; the answer shows which."""
    job_id = call.id("job")
    given = await call.fields(("reason",), may_be_empty=True)
    return answer(job_json(await call.service.store.write(cancel, job_id, _reason(given))))


@routes.post("/api/jobs/{id}/retry", answers={201: Job}, refuses=(400, 409, 413))
async def retry_job(call: ApiRequest) -> Response:
    """Try a job again that failed, was skipped or was cancelled: a new job at the end of its priority."""
    job_id = call.id("job")
    await call.fields((), may_be_empty=True)
    job = await call.service.store.write(retry, job_id)
    return answer(job_json(job), 201, {"Location": f"/api/jobs/{job.id}"})


@routes.post("/api/jobs/{id}/move", body=MoveRequest, answers={200: Job}, refuses=(409,))
async def move_job(call: ApiRequest) -> Response:
    """Move a QUEUED job within its priority."""
    job_id = call.id("job")
    given = await call.fields(("before", "after", "to"))
    for name in ("before", "after"):
        if given.get(name) is not None and not isinstance(given[name], str):
            raise Invalid(f"{name} must be the id of a job.", code="invalid_id", field=name)
    return answer(job_json(await call.service.store.write(move, job_id, **given)))


@routes.get("/api/jobs/{id}/explain", answers={200: Explanation})
async def explain_job(call: ApiRequest) -> Response:
    """Say why a job is where it is, and when it will probably start."""
    return answer(await call.service.store.read(explain, call.id("job")))


@routes.get(
    "/api/jobs/{id}/events",
    answers={200: EventPage},
    parameters=(
        Parameter("limit", LIMIT.description, {"type": "integer", "minimum": 1, "maximum": 500, "default": 500}),
        CURSOR,
    ),
)
async def list_job_events(call: ApiRequest) -> Response:
    """List what the scheduler decided about a job, in order."""
    limit = call.whole("limit", 500, 1, 500)
    page = await call.service.store.read(_events, call.id("job"), limit, call.cursor)
    return answer({"items": [event_json(each) for each in page.items], "next_cursor": page.next_cursor})


def _events(tx: Transaction, job_id: str, limit: int, cursor: str | None) -> Page[Event]:
    load_job(tx, job_id)
    cursors = Cursors("job_events", {"job_id": job_id})
    last = cursors.read(cursor, int)
    found = [each.event for each in events_of_job(tx, job_id, limit + 1, after=last[0] if last else 0)]
    items = found[:limit]
    return Page(items, cursors.write(items[-1].id) if len(found) > limit else None)
