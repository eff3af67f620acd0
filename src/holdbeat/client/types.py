"""The JSON of the API as types: what the clients return. Fields and words are those of the API itself."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypedDict, TypeVar

JsonObject = dict[str, Any]
T = TypeVar("T")

JobStatus = Literal["QUEUED", "RUNNING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]
TERMINAL: frozenset[str] = frozenset({"COMPLETED", "FAILED", "SKIPPED", "CANCELLED"})


class Page(TypedDict, Generic[T]):
    """One page of a list; `next_cursor` is null on the last."""

    items: list[T]
    next_cursor: str | None


class Items(TypedDict, Generic[T]):
    items: list[T]


class RetryPolicy(TypedDict):
    max_attempts: int
    base_delay_s: float
    max_delay_s: float
    jitter: float


class RetryPolicyPart(TypedDict, total=False):
    """The members that a template or a schedule sets."""

    max_attempts: int
    base_delay_s: float
    max_delay_s: float
    jitter: float


class Progress(TypedDict):
    fraction: float | None
    message: str | None


class JobRun(TypedDict):
    id: str
    job_id: str
    template_id: str | None
    params_snapshot: JsonObject
    worker_id: str | None
    fence: int
    started_at: str
    finished_at: str | None
    status: Literal["COMPLETED", "FAILED", "SKIPPED"] | None
    exit_code: int | None
    error: str | None
    error_kind: str | None
    artifacts: JsonObject
    result: Any


class Job(TypedDict):
    id: str
    type: str
    params: JsonObject
    status: JobStatus
    priority: int
    position: int
    resource: str
    template_id: str | None
    schedule_id: str | None
    scheduled_for: str | None
    group_id: str | None
    sequence: int | None
    root_id: str
    retry_of: str | None
    retry_kind: Literal["auto", "manual"] | None
    retried_by: str | None
    permanently_failed: bool
    retry_policy: RetryPolicy
    timeout_s: float | None
    cancel_grace_s: float | None
    not_before: str | None
    idempotency_key: str | None
    webhook_url: str | None
    labels: dict[str, str]
    created_at: str
    started_at: str | None
    finished_at: str | None
    cancel_requested_at: str | None
    cancel_reason: str | None
    worker_id: str | None
    heartbeat_at: str | None
    lease_expires_at: str | None
    run: JobRun | None
    attempt: int
    manual_retries: list[str]
    progress: Progress | None


class QueueEntry(Job):
    blocked_by: list[str]


class Pause(TypedDict):
    resource: str | None
    paused_at: str
    paused_by: str | None
    reason: str | None


class Pauses(TypedDict):
    paused: list[Pause]


class Queue(TypedDict):
    items: list[QueueEntry]
    next_cursor: str | None
    paused: list[Pause]


class BulkResult(TypedDict):
    matched: int
    changed: int
    ids: list[str]


class Reason(TypedDict):
    """Besides these two a reason may carry more, by its code."""

    code: str
    detail: str


class Explanation(TypedDict):
    state: str
    summary: str
    reasons: list[Reason]
    estimated_start: str | None


class LogLine(TypedDict):
    sequence: int
    at: str
    stream: str
    text: str


class JobGroup(TypedDict):
    id: str
    name: str | None
    mode: Literal["sequential", "parallel"]
    on_failure: Literal["stop", "continue", "skip"]
    status: Literal["QUEUED", "RUNNING", "COMPLETED", "PARTIAL", "CANCELLED"]
    created_at: str
    started_at: str | None
    finished_at: str | None


class JobGroupWithJobs(JobGroup):
    jobs: list[Job]


class JobTemplate(TypedDict):
    id: str
    name: str
    type: str
    default_params: JsonObject
    priority: int | None
    resource: str | None
    retry_policy: RetryPolicyPart | None
    timeout_s: float | None
    cancel_grace_s: float | None
    webhook_url: str | None
    labels: dict[str, str]
    description: str | None
    archived_at: str | None
    version: int
    created_at: str


class _Timing(TypedDict):
    id: str
    name: str
    enabled: bool
    priority: int | None
    timeout_s: float | None
    webhook_url: str | None
    labels: dict[str, str] | None
    cron: str | None
    interval_s: float | None
    timezone: str
    dst: Literal["vixie", "skip", "shift"]
    jitter_s: float
    start_at: str | None
    end_at: str | None
    catch_up: Literal["latest", "none", "all"]
    catch_up_limit: int
    misfire_grace_s: float | None
    overlap: Literal["allow", "skip", "queue_one", "cancel_previous"]
    adaptive: bool
    min_interval_s: float | None
    max_interval_s: float | None
    paused_until: str | None
    paused_indefinitely: bool
    pause_reason: str | None
    hint_interval_s: float | None
    hint_interval_expires_at: str | None
    hint_interval_reason: str | None
    hint_next_run_at: str | None
    hint_next_run_expires_at: str | None
    hint_next_run_reason: str | None
    failure_count: int
    last_run_at: str | None
    next_run_at: str | None
    fires_at: str | None
    last_decision: JsonObject | None
    trouble: str | None
    warnings: list[str]
    version: int
    created_at: str


class Schedule(_Timing, total=False):
    """A Schedule, or an Endpoint: the latter has `url` and what follows it, the former what stands above."""

    template_id: str | None
    type: str | None
    params: JsonObject | None
    resource: str | None
    retry_policy: RetryPolicyPart | None
    cancel_grace_s: float | None
    url: str
    method: str
    headers: dict[str, str]
    body: Any
    max_execution_s: float
    max_response_kb: int


class Occurrence(TypedDict):
    id: str
    schedule_id: str
    due_at: str
    status: Literal["fired", "skipped", "missed", "coalesced", "manual"]
    job_id: str | None
    reason: str | None
    count: int
    recorded_at: str
    late_s: float


class DueTime(TypedDict):
    at: str
    local: str
    note: Literal["gap", "fold"] | None


class DirectAnswer(TypedDict, total=False):
    reservation_id: str
    outcome: Literal["COMPLETED", "SKIPPED"]
    result: Any
    waited_s: float
    ran_s: float
    reason: str | None


class Reservation(TypedDict):
    id: str
    type: str
    resource: str
    status: Literal["ACTIVE", "RELEASED", "EXPIRED"]
    requested_at: str
    granted_at: str | None
    finished_at: str | None
    expires_at: str
    owner: str | None
    outcome: Literal["COMPLETED", "FAILED", "SKIPPED", "CANCELLED"] | None
    error: str | None
    estimated_start: str | None


class Webhook(TypedDict):
    id: str
    url: str
    events: list[str]
    secret: str
    enabled: bool
    disabled_reason: str | None
    rotated_at: str | None
    version: int
    created_at: str


class WebhookSecret(TypedDict):
    secret: str
    previous_secret: str | None
    rotated_at: str | None


class Delivery(TypedDict):
    id: str
    webhook_id: str | None
    job_id: str | None
    group_id: str | None
    event: str
    url: str
    payload: JsonObject
    status: Literal["PENDING", "DELIVERED", "FAILED"]
    attempts: int
    next_attempt_at: str | None
    created_at: str
    delivered_at: str | None
    last_status_code: int | None
    last_error: str | None


class Worker(TypedDict):
    id: str
    kind: str
    host: str
    pid: int
    slots: int
    http_slots: int
    types: list[str]
    resources: list[str] | None
    version: str
    started_at: str | None
    heartbeat_at: str | None
    expires_at: str | None
    stopping_at: str | None
    stopped_at: str | None


class JobType(TypedDict):
    name: str
    description: str | None
    aliases: list[str]
    schema: JsonObject
    defaults: JsonObject
    announced_at: str | None


class Event(TypedDict):
    id: int
    name: str
    at: str
    job_id: str | None
    run_id: str | None
    worker_id: str | None
    group_id: str | None
    schedule_id: str | None
    data: JsonObject


class Stats(TypedDict):
    jobs: dict[str, int]
    resources: dict[str, JsonObject]
    runs: dict[str, dict[str, int]]
    workers: int
    zombies_recovered: int
    stale_results: int
    schedules: int
