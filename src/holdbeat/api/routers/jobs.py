"""Routes of jobs, the queue, job runs, job groups and job templates."""

from __future__ import annotations

import re
from typing import Any

from holdbeat.api.request import HEADERS, ApiRequest
from holdbeat.api.routes import ID_OR_NAME, LIMIT, NAME, TEXT, Parameter, Routes
from holdbeat.domain.errors import Invalid
from holdbeat.domain.group import GroupStatus
from holdbeat.domain.job import JobStatus
from holdbeat.domain.run import RUN_STATUSES, ErrorKind
from holdbeat.operations import durable, groups, jobs, runs, submitting, templates
from holdbeat.schemas.base import CancelRequest, Items, Page
from holdbeat.schemas.durable import (
    AnswerRequest,
    JobGraph,
    Question,
    RerunRequest,
    RetryRequest,
    Signal,
    SignalRequest,
    Step,
)
from holdbeat.schemas.field_bounds import LONGEST_KEY
from holdbeat.schemas.jobs import (
    BulkCancelRequest,
    BulkResult,
    BulkRetryRequest,
    Explanation,
    GroupRequest,
    GroupSummary,
    Job,
    JobBatchRequest,
    JobChange,
    JobGroup,
    JobRequest,
    JobRun,
    JobTemplate,
    MoveRequest,
    PauseList,
    PauseRequest,
    QueuePage,
    ReorderRequest,
    ResumeRequest,
    TemplateChange,
    TemplateRequest,
)
from holdbeat.schemas.system import Event

job_routes = Routes("jobs")
queue_routes = Routes("queue")
run_routes = Routes("job runs")
template_routes = Routes("job templates", path_id=ID_OR_NAME)
group_routes = Routes("job groups")

_KEY = Parameter(
    "Idempotency-Key",
    "The same key with the same request finds the same job again; with another request it is a 409.",
    {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[!-~]+$"},
    place="header",
)
_HEADER_KEY = re.compile(r"[!-~]{1,255}")
_FILTERS = (
    Parameter(
        "status", "Only jobs of this status; several by repeating it.", {"enum": list(JobStatus)}, is_multiple=True
    ),
    Parameter("type", "Only jobs of this type.", TEXT),
    Parameter("resource", "Only jobs on this resource.", TEXT),
    Parameter("schedule_id", "Only jobs that this schedule made.", TEXT),
    Parameter("group_id", "Only members of this group.", TEXT),
    Parameter("template_id", "Only jobs made from this template.", TEXT),
    Parameter("parent_id", "Only jobs that handlers of this job's chain have made.", TEXT),
    Parameter("label", "Only jobs with this label, as name=value; several by repeating it.", TEXT, is_multiple=True),
    Parameter("created_after", "Only jobs made after this instant.", {"type": "string", "format": "date-time"}),
    Parameter("created_before", "Only jobs made before this instant.", {"type": "string", "format": "date-time"}),
    Parameter(
        "q", "A part of the title, id, type, a label (name=value) or a param. A page may be short and have a next one.",
        {"type": "string"},
    ),
    Parameter(
        "priority", "Only jobs of this priority, or of a range such as 50..100.",
        {"type": "string", "pattern": r"^[0-9]{1,3}$|^[0-9]{0,3}\.\.[0-9]{0,3}$"},
    ),
)  # fmt: skip


# --- the header Idempotency-Key -----------------------------------------------------------------------------


def with_header_key(request: ApiRequest, fields: dict[str, Any]) -> dict[str, Any]:
    """The body with the key of the header `Idempotency-Key`; one that differs from the field is refused."""
    if b"idempotency-key" not in request.request.scope[HEADERS]:
        return fields
    keys = request.request.headers.getlist("idempotency-key")
    if len(keys) > 1:
        raise Invalid(
            "The header Idempotency-Key is sent more than once; send it once.",
            code="duplicate_header",
            field="Idempotency-Key",
        )
    if not _HEADER_KEY.fullmatch(keys[0]):
        raise Invalid(
            "The header Idempotency-Key must be 1 to 255 visible ASCII characters without blanks; a key of other "
            "characters goes into the field idempotency_key.",
            code="invalid_header",
            field="Idempotency-Key",
        )
    if fields.get("idempotency_key") not in (None, keys[0]):
        raise Invalid(
            "The header Idempotency-Key and the field idempotency_key differ; send one of them, or the same in both.",
            code="idempotency_mismatch",
            field="idempotency_key",
        )
    return {**fields, "idempotency_key": keys[0]}


def without_header_key(request: ApiRequest, fields: dict[str, Any]) -> dict[str, Any]:
    """Refuses the header where a request has many jobs."""
    if request.header("idempotency-key") is not None:
        raise Invalid(
            "The header Idempotency-Key is for a single job; give each job of a list its own idempotency_key.",
            code="key_for_many",
            field="Idempotency-Key",
        )
    return fields


_ORDER = Parameter(
    "order", "newest first, or oldest first; a search by text is always newest first.",
    {"type": "string", "enum": ["newest", "oldest"]},
)  # fmt: skip

# --- jobs ---------------------------------------------------------------------------------------------------

job_routes.operation(
    "POST", "/api/jobs", submitting.submit_job, body=JobRequest, answers={200: Job, 201: Job}, refuses=(409,),
    parameters=(_KEY,), body_hook=with_header_key,
)  # fmt: skip
job_routes.operation(
    "POST", "/api/jobs/batch", submitting.submit_jobs, body=JobBatchRequest, answers={200: Items[Job], 201: Items[Job]},
    refuses=(409,), renamed={"jobs": "requests"}, body_hook=without_header_key,
)  # fmt: skip
job_routes.operation("GET", "/api/jobs", jobs.list_jobs, answers={200: Page[Job]}, parameters=(*_FILTERS, _ORDER))
job_routes.operation("POST", "/api/jobs/cancel", jobs.cancel_jobs, body=BulkCancelRequest, answers={200: BulkResult})
job_routes.operation("GET", "/api/jobs/{id}", jobs.get_job, answers={200: Job})
job_routes.operation("PATCH", "/api/jobs/{id}", jobs.update_job, body=JobChange, answers={200: Job}, refuses=(409,))
job_routes.operation(
    "POST", "/api/jobs/{id}/cancel", jobs.cancel_job, body=CancelRequest, body_optional=True, answers={200: Job},
    refuses=(409,),
)  # fmt: skip
job_routes.operation(
    "POST", "/api/jobs/{id}/retry", jobs.retry_job, body=RetryRequest, body_optional=True, answers={201: Job},
    refuses=(409,),
)  # fmt: skip
job_routes.operation(
    "POST", "/api/jobs/{id}/rerun", jobs.rerun_job, body=RerunRequest, body_optional=True, answers={201: Job},
    refuses=(409,),
)  # fmt: skip
job_routes.operation("POST", "/api/jobs/{id}/move", jobs.move_job, body=MoveRequest, answers={200: Job}, refuses=(409,))
job_routes.operation("GET", "/api/jobs/{id}/steps", durable.list_steps, answers={200: Items[Step]})
job_routes.operation("GET", "/api/questions", durable.list_questions, answers={200: Page[Question]})
job_routes.operation(
    "POST", "/api/questions/{id}/answer", durable.answer_question, body=AnswerRequest, answers={200: Question},
    refuses=(409,),
)  # fmt: skip
job_routes.operation("GET", "/api/jobs/{id}/graph", durable.get_graph, name="get_job_graph", answers={200: JobGraph})
job_routes.operation(
    "POST", "/api/jobs/{id}/signals/{name}", durable.send_signal, body=SignalRequest, body_optional=True,
    answers={201: Signal}, refuses=(409,),
)  # fmt: skip
job_routes.operation("GET", "/api/jobs/{id}/explain", jobs.explain_job, answers={200: Explanation})
job_routes.operation(
    "GET", "/api/jobs/{id}/events", jobs.job_events, name="list_job_events", answers={200: Page[Event]},
    parameters=(
        Parameter("limit", LIMIT.description, {"type": "integer", "minimum": 1, "maximum": 500, "default": 500}),
    ),
)  # fmt: skip

# --- the queue ----------------------------------------------------------------------------------------------

queue_routes.operation(
    "GET", "/api/queue", jobs.get_queue, answers={200: QueuePage},
    parameters=(Parameter("resource", "Only jobs on this resource.", NAME),),
)  # fmt: skip
queue_routes.operation(
    "POST", "/api/queue/reorder", jobs.reorder_queue, body=ReorderRequest, answers={200: Items[Job]},
    refuses=(404, 409),
)  # fmt: skip
queue_routes.operation(
    "POST", "/api/queue/pause", jobs.pause_queue, body=PauseRequest, body_optional=True, answers={200: PauseList}
)
queue_routes.operation(
    "POST", "/api/queue/resume", jobs.resume_queue, body=ResumeRequest, body_optional=True, answers={200: PauseList}
)

# --- job runs -----------------------------------------------------------------------------------------------

run_routes.operation(
    "GET", "/api/job-runs", runs.list_job_runs, answers={200: Page[JobRun]},
    parameters=(
        Parameter(
            "status", "RUNNING finds those that have not ended.", {"enum": list(RUN_STATUSES)}, is_multiple=True
        ),
        Parameter("job_id", "Only the run of this job.", TEXT),
        Parameter("type", "Only runs of this type.", TEXT),
        Parameter("error_kind", "Only runs that failed like this.", {"enum": list(ErrorKind)}, is_multiple=True),
    ),
)  # fmt: skip
run_routes.operation(
    "POST", "/api/job-runs/retry", runs.retry_job_runs, body=BulkRetryRequest, answers={200: BulkResult}
)
run_routes.operation("GET", "/api/job-runs/{id}", runs.get_job_run, answers={200: JobRun})
run_routes.operation(
    "POST", "/api/job-runs/{id}/retry", runs.retry_job_run, answers={201: Job}, refuses=(400, 409, 413)
)

# --- job templates ------------------------------------------------------------------------------------------

template_routes.operation(
    "POST", "/api/job-templates", templates.create_template, name="create_job_template", body=TemplateRequest,
    answers={201: JobTemplate}, refuses=(409,),
)  # fmt: skip
template_routes.operation(
    "GET", "/api/job-templates", templates.list_templates, name="list_job_templates",
    answers={200: Page[JobTemplate]},
    parameters=(
        Parameter("type", "Only templates of this type.", TEXT),
        Parameter("archived", "Archived ones, or all.", {"enum": ["true", "false", "all"], "default": "false"}),
    ),
)  # fmt: skip
template_routes.operation(
    "GET", "/api/job-templates/{id}", templates.get_template, name="get_job_template", answers={200: JobTemplate}
)
template_routes.operation(
    "PATCH", "/api/job-templates/{id}", templates.update_template, name="update_job_template", body=TemplateChange,
    answers={200: JobTemplate}, refuses=(409,),
)  # fmt: skip
template_routes.operation(
    "DELETE", "/api/job-templates/{id}", templates.archive_template, name="archive_job_template",
    answers={200: JobTemplate}, refuses=(409,),
)  # fmt: skip

# --- job groups ---------------------------------------------------------------------------------------------

group_routes.operation(
    "POST", "/api/job-groups", groups.create_group, name="create_job_group", body=GroupRequest,
    answers={201: JobGroup}, refuses=(409,), body_hook=without_header_key,
)  # fmt: skip
group_routes.operation(
    "GET", "/api/job-groups", groups.list_groups, name="list_job_groups", answers={200: Page[GroupSummary]},
    parameters=(
        Parameter("status", "Only groups of this status.", {"enum": list(GroupStatus)}, is_multiple=True),
        Parameter("name", "Only groups of this name.", TEXT),
    ),
)  # fmt: skip
group_routes.operation("GET", "/api/job-groups/{id}", groups.get_group, name="get_job_group", answers={200: JobGroup})
group_routes.operation(
    "POST", "/api/job-groups/{id}/cancel", groups.cancel_group, name="cancel_job_group", body=CancelRequest,
    body_optional=True, answers={200: JobGroup}, refuses=(409,),
)  # fmt: skip
