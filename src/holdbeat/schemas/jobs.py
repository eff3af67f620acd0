"""Jobs, JobRuns, JobGroups, JobTemplates and the queue."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from holdbeat.schemas import field_bounds
from holdbeat.schemas.base import (
    NO_DEFAULT,
    DelayS,
    Id,
    Instant,
    JsonObject,
    Key,
    Keywords,
    Labels,
    Name,
    Priority,
    Reason,
    RetryPolicy,
    RetryPolicyPart,
    RetryPolicyRequest,
    TimeoutS,
    Url,
    change,
    open_object,
    request,
)
from holdbeat.schemas.durable import OnUpstream, OpenStep, Upstream, UpstreamRequest

JobStatus = Literal["QUEUED", "RUNNING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED", "CONTINUED"]
TERMINAL: frozenset[str] = frozenset({"COMPLETED", "FAILED", "SKIPPED", "CANCELLED", "CONTINUED"})
GroupStatus = Literal["QUEUED", "RUNNING", "COMPLETED", "PARTIAL", "CANCELLED"]
GroupMode = Literal["sequential", "parallel"]
OnFailure = Literal["stop", "continue", "skip"]
UniqueWhile = Literal["queued", "unfinished"]
OnDuplicate = Literal["return", "refuse", "replace", "push_back"]


# --- jobs ---------------------------------------------------------------------------------------------------


@request(type="story", params={"prompt": "a fox"}, priority=10, labels={"team": "art"})
class JobRequest(TypedDict, total=False):
    """What to run: a `type` or a `template`, and what differs from the defaults."""

    type: Name | None
    template: Annotated[Name | None, Keywords(description="The id or the name of a job template.")]
    params: JsonObject | None
    priority: Priority | None
    resource: Name | None
    not_before: Instant | None
    delay_s: Annotated[float, Keywords(minimum=0, maximum=field_bounds.LONGEST_DELAY_S)] | None
    timeout_s: TimeoutS | None
    cancel_grace_s: Annotated[
        DelayS | None,
        Keywords(
            **NO_DEFAULT,
            description="How long a cancelled handler has before it is killed; null: never killed. Left out: as "
            "its job type says, or 10.",
        ),
    ]
    retry_policy: RetryPolicyRequest | None
    idempotency_key: Key | None
    webhook_url: Url | None
    labels: Labels | None
    partition: Annotated[Name | None, Keywords(description="Limits may count by it, e.g. a customer.")]
    weight: Annotated[
        Annotated[int, Keywords(minimum=1, maximum=field_bounds.HEAVIEST)] | None,
        Keywords(description="How many slots of its resource it takes. Left out: as its job type says, or 1."),
    ]
    preempt: Annotated[bool | None, Keywords(description="May interrupt preemptible jobs of lower priority.")]
    title: (
        Annotated[
            str,
            Keywords(
                minLength=1,
                maxLength=field_bounds.LONGEST_GIVEN_TITLE,
                description="One line for lists, cut at 120 characters. Left out: made from the type's pattern, "
                "the schedule's name or the params.",
            ),
        ]
        | None
    )
    after: Annotated[
        list[UpstreamRequest] | None,
        Keywords(description="What must end before it may start, each by one of job_id, group_id and ref."),
    ]
    on_upstream: Annotated[
        OnUpstream | None,
        Keywords(description="What to do if one of these ends otherwise than COMPLETED. Left out: cancel."),
    ]
    unique_key: Annotated[Key | None, Keywords(description="At most one job with this key waits, or is unfinished.")]
    unique_while: Annotated[UniqueWhile | None, Keywords(description="Left out: unfinished.")]
    on_duplicate: Annotated[OnDuplicate | None, Keywords(description="If a job has the key. Left out: return it.")]
    max_wait_s: Annotated[
        Annotated[float, Keywords(exclusiveMinimum=0, maximum=field_bounds.LONGEST_DELAY_S)] | None,
        Keywords(description="For how long in all push_back may move the start."),
    ]
    expires_at: Annotated[Instant | None, Keywords(description="If it has not started by then, it is skipped.")]
    expires_in_s: Annotated[float, Keywords(exclusiveMinimum=0, maximum=field_bounds.LONGEST_DELAY_S)] | None
    ref: Annotated[Name | None, Keywords(description="Its name for later jobs of the same batch.")]


@request(jobs=[{"type": "story", "params": {"prompt": "a fox"}}, {"type": "story", "params": {"prompt": "a hare"}}])
class JobBatchRequest(TypedDict):
    jobs: Annotated[list[JobRequest], Keywords(minItems=1)]


@change(priority=50, labels={"team": "art"})
class JobChange(TypedDict, total=False):
    """What to change; omitted fields keep their values."""

    priority: Priority
    params: Annotated[JsonObject, Keywords(description="They take the place of the old ones as a whole.")]
    not_before: Instant | None
    labels: Labels | None


@request(to="top")
class MoveRequest(TypedDict, total=False):
    """Where to: before or after another job, or to the top, the bottom or an index of its priority."""

    before: Id | None
    after: Id | None
    to: Literal["top", "bottom"] | int | None


@request(status="QUEUED", type="story", label="team=art")
class JobFilter(TypedDict, total=False):
    """Which jobs; all that is given must fit. It must not be empty."""

    status: JobStatus | list[JobStatus] | None
    type: str | None
    resource: str | None
    schedule_id: str | None
    group_id: str | None
    template_id: str | None
    parent_id: str | None
    label: Annotated[str | list[str] | None, Keywords(description="name=value")]
    priority: Annotated[int | str | None, Keywords(description="A number, or a range such as 50..100.")]
    ids: list[Id] | None
    created_before: Instant | None
    created_after: Instant | None


@request(error_kind=["crash", "lost"], type="story")
class RunFilter(JobFilter, total=False):
    error_kind: str | list[str] | None


@request(filter={"type": "story", "label": "team=art"}, dry_run=True, reason="not needed")
class BulkCancelRequest(TypedDict):
    filter: JobFilter
    dry_run: NotRequired[Annotated[bool, Keywords(default=False)]]
    reason: NotRequired[Reason | None]


@request(filter={"error_kind": ["crash", "lost"]}, dry_run=True)
class BulkRetryRequest(TypedDict):
    filter: RunFilter
    dry_run: NotRequired[Annotated[bool, Keywords(default=False)]]


class BulkResult(TypedDict):
    matched: int
    changed: int
    ids: list[str]


class JobRun(TypedDict):
    id: Id
    job_id: Id
    template_id: Id | None
    params_snapshot: JsonObject
    worker_id: str | None
    fence: int
    started_at: Instant
    finished_at: Instant | None
    status: Annotated[
        Literal["COMPLETED", "FAILED", "SKIPPED", "CONTINUED"] | None, Keywords(description="null while it executes")
    ]
    exit_code: int | None
    error: str | None
    error_kind: str | None
    artifacts: JsonObject
    result: Annotated[Any, Keywords(description="null in lists and webhooks if it is large")]
    result_bytes: Annotated[int | None, Keywords(description="The size of a result that was left out.")]
    result_url: Annotated[str | None, Keywords(description="Where a result that was left out is read.")]


class Progress(TypedDict):
    fraction: float | None
    message: str | None


class Job(TypedDict):
    id: Id
    type: str
    title: str
    params: JsonObject
    status: JobStatus
    priority: int
    position: int
    resource: str
    template_id: Id | None
    schedule_id: Id | None
    scheduled_for: Instant | None
    group_id: Id | None
    sequence: int | None
    root_id: Annotated[Id, Keywords(description="the first job of its chain, or itself")]
    retry_of: Id | None
    retry_kind: Literal["auto", "manual", "continue"] | None
    retried_by: Id | None
    continued_by: Annotated[Id | None, Keywords(description="the job in which a handler that waited goes on")]
    waits_for: Annotated[
        JsonObject | None, Keywords(description="what its chain waits for now: its kind, and until when")
    ]
    waits: Annotated[
        list[JsonObject], Keywords(description="all that its chain waits for now, in parallel; waits_for is the first")
    ]
    after: Annotated[list[Upstream], Keywords(description="what its chain depends on")]
    on_upstream: OnUpstream | None
    parent_id: Annotated[Id | None, Keywords(description="the first job of the chain whose handler made it")]
    is_detached: Annotated[bool, Keywords(description="whether it goes on if its parent is cancelled")]
    unique_key: str | None
    unique_while: UniqueWhile | None
    expires_at: Instant | None
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
    open_steps: Annotated[list[OpenStep], Keywords(description="where its handler is, or was when it failed")]
    partition: str | None
    weight: int
    affinity: str | None
    preempt: bool
    preemptible: bool


@open_object
class ExplainReason(TypedDict):
    """Besides these two a reason may carry more, by its code."""

    code: str
    detail: str


@open_object
class Explanation(TypedDict):
    state: str
    summary: str
    reasons: list[ExplainReason]
    estimated_start: Instant | None


class LogLine(TypedDict):
    sequence: int
    at: Instant
    stream: str
    text: str


# --- the queue ----------------------------------------------------------------------------------------------


class QueueEntry(Job):
    blocked_by: list[str]


class Pause(TypedDict):
    resource: Annotated[str | None, Keywords(description="null: everything")]
    paused_at: Instant
    paused_by: str | None
    reason: str | None


class QueuePage(TypedDict):
    items: list[QueueEntry]
    next_cursor: str | None
    paused: list[Pause]


@request(resource="gpu", reason="a new model is loaded")
class PauseRequest(TypedDict, total=False):
    resource: Name | None
    reason: Reason | None


@request(resource="gpu")
class ResumeRequest(TypedDict, total=False):
    resource: Name | None


class PauseList(TypedDict):
    paused: list[Pause]


@request(job_ids=["01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058"])
class ReorderRequest(TypedDict):
    job_ids: Annotated[list[Id], Keywords(minItems=1)]


# --- groups and templates -----------------------------------------------------------------------------------


@request(name="the fox", mode="sequential", on_failure="stop", jobs=[{"type": "story"}, {"type": "picture"}])
class GroupRequest(TypedDict):
    mode: GroupMode
    jobs: Annotated[list[JobRequest], Keywords(minItems=1)]
    name: NotRequired[Name | None]
    on_failure: NotRequired[Annotated[OnFailure, Keywords(default="stop")]]
    then: NotRequired[Annotated[JobRequest | None, Keywords(description="A job that runs when the group has ended.")]]
    then_when: NotRequired[Annotated[Literal["completed", "always"], Keywords(default="completed")]]


class GroupSummary(TypedDict):
    id: Id
    name: str | None
    mode: GroupMode
    on_failure: OnFailure
    status: GroupStatus
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None
    then_job_id: Annotated[Id | None, Keywords(description="the job that runs when it has ended")]


class JobGroup(GroupSummary):
    jobs: list[Job]


class _TemplateFields(TypedDict, total=False):
    default_params: JsonObject | None
    priority: Priority | None
    resource: Name | None
    retry_policy: RetryPolicyRequest | None
    timeout_s: TimeoutS | None
    cancel_grace_s: Annotated[
        DelayS | None,
        Keywords(description="How long a cancelled handler has before it is killed. Null: as its job type says."),
    ]
    webhook_url: Url | None
    labels: Labels | None
    description: Annotated[str, Keywords(maxLength=field_bounds.LONGEST_DESCRIPTION)] | None


@request(name="bedtime", type="story", default_params={"length": 400}, priority=10)
class TemplateRequest(_TemplateFields):
    """Named defaults from which jobs are made."""

    name: Name
    type: Name


@change(default_params={"length": 600}, priority=20)
class TemplateChange(_TemplateFields, total=False):
    """What to change; omitted fields keep their values."""

    name: Name
    type: Name


class JobTemplate(TypedDict):
    id: Id
    name: str
    type: str
    default_params: JsonObject
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
