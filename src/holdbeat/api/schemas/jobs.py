"""Jobs, JobRuns, JobGroups, JobTemplates and the queue."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from holdbeat.api.schemas.base import (
    Answer,
    CancelGraceS,
    Id,
    Instant,
    Labels,
    Name,
    Params,
    Priority,
    Reason,
    Request,
    RetryPolicy,
    RetryPolicyPart,
    RetryPolicyRequest,
    TimeoutS,
    Url,
    no_default,
    with_example,
    without_defaults,
)

JobStatus = Literal["QUEUED", "RUNNING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]
GroupStatus = Literal["QUEUED", "RUNNING", "COMPLETED", "PARTIAL", "CANCELLED"]


class JobRequest(Request):
    """What to run: a `type` or a `template`, and what differs from the defaults."""

    model_config = with_example(type="story", params={"prompt": "a fox"}, priority=10, labels={"team": "art"})
    type: Name | None = None
    template: Name | None = Field(default=None, description="The id or the name of a job template.")
    params: Params | None = None
    priority: Priority | None = None
    resource: Name | None = None
    not_before: Instant | None = None
    delay_s: Annotated[float, Field(ge=0, le=315_360_000)] | None = None
    timeout_s: TimeoutS | None = None
    cancel_grace_s: CancelGraceS | None = Field(
        default=None,
        description="How long a cancelled handler has before it is killed; null: never killed. Left out: as its job "
        "type says, or 10.",
        json_schema_extra=no_default,
    )
    retry_policy: RetryPolicyRequest | None = None
    idempotency_key: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    webhook_url: Url | None = None
    labels: Labels | None = None


class JobBatchRequest(Request):
    model_config = with_example(
        jobs=[{"type": "story", "params": {"prompt": "a fox"}}, {"type": "story", "params": {"prompt": "a hare"}}]
    )
    jobs: Annotated[list[JobRequest], Field(min_length=1)]


class JobChange(Request):
    """What to change; what is left out stays."""

    model_config = without_defaults(priority=50, labels={"team": "art"})
    priority: Priority = 0
    params: Params = Field(default={}, description="They take the place of the old ones as a whole.")
    not_before: Instant | None = None
    labels: Labels | None = None


class MoveRequest(Request):
    """Where to: before or after another job, or to the top, the bottom or an index of its priority."""

    model_config = with_example(to="top")
    before: Id | None = None
    after: Id | None = None
    to: Literal["top", "bottom"] | int | None = None


class JobFilter(Request):
    """Which jobs; all that is given must fit. It must not be empty."""

    model_config = with_example(status="QUEUED", type="story", label="team=art")
    status: JobStatus | list[JobStatus] | None = None
    type: str | None = None
    resource: str | None = None
    schedule_id: str | None = None
    group_id: str | None = None
    template_id: str | None = None
    label: str | list[str] | None = Field(default=None, description="name=value")
    ids: list[Id] | None = None
    created_before: Instant | None = None
    created_after: Instant | None = None


class RunFilter(JobFilter):
    model_config = with_example(error_kind=["crash", "lost"], type="story")
    error_kind: str | list[str] | None = None


class BulkCancelRequest(Request):
    model_config = with_example(filter={"type": "story", "label": "team=art"}, dry_run=True, reason="not needed")
    filter: JobFilter
    dry_run: bool = False
    reason: Reason | None = None


class BulkRetryRequest(Request):
    model_config = with_example(filter={"error_kind": ["crash", "lost"]}, dry_run=True)
    filter: RunFilter
    dry_run: bool = False


class BulkResult(Answer):
    matched: int
    changed: int
    ids: list[str]


class JobRun(Answer):
    id: Id
    job_id: Id
    template_id: Id | None
    params_snapshot: Params
    worker_id: str | None
    fence: int
    started_at: Instant
    finished_at: Instant | None
    status: Literal["COMPLETED", "FAILED", "SKIPPED"] | None = Field(description="null while it executes")
    exit_code: int | None
    error: str | None
    error_kind: str | None
    artifacts: dict[str, Any]
    result: Any


class Progress(Answer):
    fraction: float | None
    message: str | None


class Job(Answer):
    id: Id
    type: str
    params: Params
    status: JobStatus
    priority: int
    position: int
    resource: str
    template_id: Id | None
    schedule_id: Id | None
    scheduled_for: Instant | None
    group_id: Id | None
    sequence: int | None
    root_id: Id = Field(description="the first job of its chain, or itself")
    retry_of: Id | None
    retry_kind: Literal["auto", "manual"] | None
    retried_by: Id | None
    permanently_failed: bool
    retry_policy: RetryPolicy
    timeout_s: float | None
    cancel_grace_s: float | None
    not_before: Instant | None
    idempotency_key: str | None
    webhook_url: str | None
    labels: Labels
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None
    cancel_requested_at: Instant | None
    cancel_reason: str | None
    worker_id: str | None
    heartbeat_at: Instant | None
    lease_expires_at: Instant | None
    run: JobRun | None
    attempt: int
    manual_retries: list[Id]
    progress: Progress | None


class JobPage(Answer):
    items: list[Job]
    next_cursor: str | None


class JobList(Answer):
    items: list[Job]


class JobRunPage(Answer):
    items: list[JobRun]
    next_cursor: str | None


class ExplainReason(Answer):
    model_config = ConfigDict(extra="allow")
    code: str
    detail: str


class Explanation(Answer):
    model_config = ConfigDict(extra="allow")
    state: str
    summary: str
    reasons: list[ExplainReason]
    estimated_start: Instant | None


class LogLine(Answer):
    sequence: int
    at: Instant
    stream: str
    text: str


class LogPage(Answer):
    items: list[LogLine]
    next_cursor: str | None


class QueueEntry(Job):
    blocked_by: list[str]


class Pause(Answer):
    resource: str | None = Field(description="null: everything")
    paused_at: Instant
    paused_by: str | None
    reason: str | None


class QueuePage(Answer):
    items: list[QueueEntry]
    next_cursor: str | None
    paused: list[Pause]


class PauseRequest(Request):
    model_config = with_example(resource="gpu", reason="a new model is loaded")
    resource: Name | None = None
    reason: Reason | None = None


class ResumeRequest(Request):
    model_config = with_example(resource="gpu")
    resource: Name | None = None


class PauseList(Answer):
    paused: list[Pause]


class ReorderRequest(Request):
    model_config = with_example(
        job_ids=["01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058"]
    )
    job_ids: Annotated[list[Id], Field(min_length=1)]


class GroupRequest(Request):
    model_config = with_example(
        name="the fox", mode="sequential", on_failure="stop", jobs=[{"type": "story"}, {"type": "picture"}]
    )
    name: Name | None = None
    mode: Literal["sequential", "parallel"]
    on_failure: Literal["stop", "continue", "skip"] = "stop"
    jobs: Annotated[list[JobRequest], Field(min_length=1)]


class GroupSummary(Answer):
    id: Id
    name: str | None
    mode: Literal["sequential", "parallel"]
    on_failure: Literal["stop", "continue", "skip"]
    status: GroupStatus
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None


class JobGroup(GroupSummary):
    jobs: list[Job]


class GroupPage(Answer):
    items: list[GroupSummary]
    next_cursor: str | None


class _TemplateFields(Request):
    default_params: Params | None = None
    priority: Priority | None = None
    resource: Name | None = None
    retry_policy: RetryPolicyRequest | None = None
    timeout_s: TimeoutS | None = None
    cancel_grace_s: CancelGraceS | None = Field(
        default=None, description="How long a cancelled handler has before it is killed. Null: as its job type says."
    )
    webhook_url: Url | None = None
    labels: Labels | None = None
    description: Annotated[str, Field(max_length=5000)] | None = None


class TemplateRequest(_TemplateFields):
    """Named defaults from which jobs are made."""

    model_config = with_example(name="bedtime", type="story", default_params={"length": 400}, priority=10)
    name: Name
    type: Name


class TemplateChange(_TemplateFields):
    """What to change; what is left out stays."""

    model_config = without_defaults(default_params={"length": 600}, priority=20)
    name: Name = ""
    type: Name = ""


class JobTemplate(Answer):
    id: Id
    name: str
    type: str
    default_params: Params
    priority: int | None
    resource: str | None
    retry_policy: RetryPolicyPart | None
    timeout_s: float | None
    cancel_grace_s: float | None
    webhook_url: str | None
    labels: Labels
    description: str | None
    archived_at: Instant | None
    version: int
    created_at: Instant


class TemplatePage(Answer):
    items: list[JobTemplate]
    next_cursor: str | None
