"""The legacy API under `/jobs`: a thin layer of old words over the same store (CON-004).

Every answer says that the path is deprecated; every call is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdbeat.api.context import ApiContext
from holdbeat.api.problem import answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import Parameter, Routes, Serve
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import Invalid
from holdbeat.domain.group import GroupMode, GroupStatus, JobGroup, OnFailure
from holdbeat.domain.job import Job, JobStatus
from holdbeat.domain.redaction import redacted_params
from holdbeat.domain.submission import Submission
from holdbeat.operations.checks import checked_fields
from holdbeat.operations.operation import OperationContext
from holdbeat.operations.submitting import check_count, guard_submissions, read_submission, submit_job
from holdbeat.schemas.legacy import (
    CompatibilityAccepted,
    CompatibilityBatch,
    CompatibilityBatchAccepted,
    CompatibilityBatchStatus,
    CompatibilityJob,
    CompatibilityJobList,
    CompatibilityTrigger,
)
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.jobs.submit import submit_group
from holdbeat.store.queue.groups import load_group
from holdbeat.store.reads.chains import roots_of, tip_of
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.reads.list_jobs import list_jobs
from holdbeat.store.transaction import Transaction

routes = Routes("compatibility")

HEADERS = {
    "Deprecation": "@1767225600",
    "Sunset": "Fri, 31 Dec 2027 23:59:59 GMT",
    "Link": '</api/jobs>; rel="successor-version"',
}
WORDS = {
    JobStatus.QUEUED: "queued",
    JobStatus.RUNNING: "running",
    JobStatus.COMPLETED: "succeeded",
    JobStatus.FAILED: "failed",
    JobStatus.CANCELLED: "cancelled",
    JobStatus.SKIPPED: "skipped",
    JobStatus.CONTINUED: "running",
}
_OLDER_WORDS = {"error": "failed", "dispatched": "running"}
"""Words that clients of the first version still ask for; answers have the words above."""
_STATUS_CHOICES = [*dict.fromkeys(WORDS.values()), *_OLDER_WORDS]
_GROUP_WORDS = {
    GroupStatus.QUEUED: "queued",
    GroupStatus.RUNNING: "running",
    GroupStatus.COMPLETED: "succeeded",
    GroupStatus.CANCELLED: "failed",
}


@routes.post(
    "/jobs/batch/trigger",
    body=CompatibilityBatch,
    answers={202: CompatibilityBatchAccepted},
    refuses=(409,),
    deprecated=True,
)
async def legacy_trigger_batch(request: ApiRequest) -> Response:
    """Submit several jobs as one batch. Use POST /api/job-groups instead."""
    requests = (await request.fields(("jobs",), required=("jobs",)))["jobs"]
    if not isinstance(requests, list):
        raise Invalid("jobs must be a list.", code="invalid_body", field="jobs")
    check_count(requests)
    context, submissions = request.operation_context, []
    for index, fields in enumerate(requests):
        place = f"jobs[{index}]."
        checked_fields(fields, ("type", "params"), required=("type",), place=place)
        submissions.append(read_submission(context, fields, place=place))
    group = await request.context.store.write(_submit, context, submissions)
    return answer({"batch_id": group.id}, 202)


def _submit(tx: Transaction, context: OperationContext, submissions: Sequence[Submission]) -> JobGroup:
    guard_submissions(tx, context, submissions)
    return submit_group(tx, None, GroupMode.PARALLEL, OnFailure.CONTINUE, submissions)[0]


@routes.post(
    "/jobs/{type}/trigger",
    body=CompatibilityTrigger,
    body_optional=True,
    answers={202: CompatibilityAccepted},
    deprecated=True,
)
async def legacy_trigger(request: ApiRequest) -> Response:
    """Submit a job; the body is its params. Use POST /api/jobs instead."""
    params = await request.object(may_be_empty=True)
    job = (await request.run(submit_job, {"type": request.path("type"), "params": params})).read()
    return answer({"job_id": job["id"], "status": WORDS[JobStatus(job["status"])]}, 202)


@routes.get(
    "/jobs",
    answers={200: CompatibilityJobList},
    parameters=(
        Parameter("status", "Only jobs of this status.", {"enum": _STATUS_CHOICES}),
        Parameter("type", "Only jobs of this type.", {"type": "string", "minLength": 1, "maxLength": 500}),
        Parameter("limit", "How many at most.", {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}),
    ),
    deprecated=True,
)
async def legacy_list_jobs(request: ApiRequest) -> Response:
    """List jobs as their last attempts stand, the newest attempt first. Use GET /api/jobs instead."""
    word = request.choice("status", _STATUS_CHOICES)
    word = _OLDER_WORDS.get(word or "", word)
    status = next((new for new, old in WORDS.items() if old == word), None)
    filters = {"status": status, "type": request.text("type")}
    limit = request.whole("limit", 50, 1, 500)
    jobs = await request.context.store.read_for_client(_tips, filters, limit)
    return answer({"jobs": [legacy_json(job, root) for job, root in jobs]})


def _tips(tx: Transaction, filters: dict[str, Any], limit: int | None) -> list[tuple[Job, str]]:
    """The last attempt of each job, with the id that its client was given."""
    tips = list_jobs(tx, filters, limit=limit, only_tips=True).items
    roots = roots_of(tx, [job.id for job in tips]) if tips else {}
    return [(job, roots.get(job.id, job.id)) for job in tips]


@routes.get("/jobs/batch/{id}", answers={200: CompatibilityBatchStatus}, deprecated=True)
async def legacy_get_batch(request: ApiRequest) -> Response:
    """Read a batch. Use GET /api/job-groups/{id} instead."""
    group, jobs = await request.context.store.read_for_client(load_group, await request.id("job group"))
    tips = [job for job in jobs if job.retried_by is None]
    original = {job.retried_by: job.id for job in jobs if job.retried_by is not None}

    def root(job_id: str) -> str:
        while job_id in original:
            job_id = original[job_id]
        return job_id

    status = _GROUP_WORDS.get(group.status)
    if status is None:
        status = "partial" if any(job.status is JobStatus.COMPLETED for job in tips) else "failed"
    return answer({"batch_id": group.id, "status": status, "jobs": [legacy_json(job, root(job.id)) for job in tips]})


@routes.get("/jobs/{id}", answers={200: CompatibilityJob}, deprecated=True)
async def legacy_get_job(request: ApiRequest) -> Response:
    """Read a job as its last attempt stands. Use GET /api/jobs/{id} instead."""
    job_id = await request.id("job")
    return answer(legacy_json(await request.context.store.read_for_client(_tip, job_id), job_id))


def _tip(tx: Transaction, job_id: str) -> Job:
    return load_job(tx, tip_of(tx, job_id))


@routes.post("/jobs/{id}/cancel", answers={200: CompatibilityJob}, refuses=(400, 409, 413), deprecated=True)
async def legacy_cancel_job(request: ApiRequest) -> Response:
    """Cancel a job. Use POST /api/jobs/{id}/cancel instead."""
    job_id = await request.id("job")
    await request.fields((), may_be_empty=True)
    return answer(legacy_json(await request.context.store.write(cancel_job, job_id), job_id))


def legacy_json(job: Job, job_id: str | None = None) -> dict[str, Any]:
    """A job in the old words. The old API knew no chains: a retry goes by the id that its client was given."""
    run = job.run
    return {
        "job_id": job_id or job.id,
        "type": job.type,
        "params": redacted_params(job.type, job.params),
        "status": WORDS[job.status],
        "result": run.result if run else None,
        "error": run.error if run else job.cancel_reason,
        "created_at": iso(job.created_at),
        "started_at": iso(job.started_at) if job.started_at else None,
        "finished_at": iso(job.finished_at) if job.finished_at else None,
    }


def deprecated(response: Response, path: str, context: ApiContext) -> Response:
    """An answer of the legacy API with the headers of a deprecated path; the call is counted under its path."""
    context.count_legacy_call(path)
    response.headers.update(HEADERS)
    return response


def _around(serve: Serve, path: str, context: ApiContext) -> Serve:
    async def serve_deprecated(request: Request) -> Response:
        return deprecated(await serve(request), path, context)

    return serve_deprecated


routes.wrap(_around)
