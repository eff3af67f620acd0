"""Schedules and Endpoints."""

from typing import Annotated, Any, Literal, TypedDict

from holdbeat.schemas import field_bounds
from holdbeat.schemas.base import (
    NO_DEFAULT,
    DelayS,
    Id,
    Instant,
    JsonObject,
    Keywords,
    Labels,
    Name,
    Priority,
    Reason,
    RetryPolicyPart,
    RetryPolicyRequest,
    TimeoutS,
    Url,
    change,
    open_object,
    request,
)
from holdbeat.schemas.jobs import Job

Dst = Literal["vixie", "skip", "shift"]
CatchUp = Literal["latest", "none", "all"]
Overlap = Literal["allow", "skip", "queue_one", "cancel_previous"]
OccurrenceStatus = Literal["fired", "skipped", "missed", "coalesced", "manual"]
CronText = Annotated[str, Keywords(minLength=1, maxLength=256, examples=["*/5 * * * *"])]
IntervalS = Annotated[
    float, Keywords(minimum=field_bounds.SHORTEST_INTERVAL_S, maximum=field_bounds.LONGEST_INTERVAL_S)
]
Zone = Annotated[str, Keywords(examples=["Europe/Berlin"])]
CallS = Annotated[float, Keywords(minimum=0.1, maximum=field_bounds.LONGEST_CALL_S)]


# --- requests -----------------------------------------------------------------------------------------------


class _TimingRequest(TypedDict, total=False):
    enabled: Annotated[bool, Keywords(default=True)]
    cron: CronText | None
    interval_s: IntervalS | None
    timezone: Annotated[Zone, Keywords(default="UTC")]
    dst: Annotated[Dst, Keywords(default="vixie")]
    jitter_s: Annotated[float, Keywords(default=0, minimum=0, maximum=field_bounds.LONGEST_JITTER_S)]
    start_at: Instant | None
    end_at: Instant | None
    catch_up_limit: Annotated[int, Keywords(default=100, minimum=1, maximum=field_bounds.MOST_CAUGHT_UP)]
    min_interval_s: IntervalS | None
    max_interval_s: IntervalS | None
    priority: Priority | None
    webhook_url: Url | None
    labels: Labels | None


class _ScheduleFields(_TimingRequest, total=False):
    catch_up: Annotated[CatchUp, Keywords(default="latest")]
    misfire_grace_s: Annotated[
        Annotated[float, Keywords(minimum=0, maximum=field_bounds.LONGEST_GRACE_S)] | None,
        Keywords(description="A due time up to this late simply fires. Left out: 60, or the interval if that is less."),
    ]
    adaptive: Annotated[bool, Keywords(default=False)]
    type: Name | None
    template: Annotated[Name | None, Keywords(description="The id or the name of a job template.")]
    template_id: Id | None
    params: JsonObject | None
    resource: Name | None
    retry_policy: RetryPolicyRequest | None
    timeout_s: TimeoutS | None
    cancel_grace_s: Annotated[
        DelayS | None,
        Keywords(
            description="How long a cancelled handler has before it is killed. Null: as its template or job type says."
        ),
    ]


class _ScheduleOptions(_ScheduleFields, total=False):
    overlap: Annotated[
        Overlap,
        Keywords(
            **NO_DEFAULT,
            description="Left out: allow, or skip if it is adaptive, for an adaptive schedule never overlaps itself.",
        ),
    ]


@request(name="nightly", cron="0 3 * * *", timezone="Europe/Berlin", type="crawl")
class ScheduleRequest(_ScheduleOptions):
    """When (`cron` or `interval_s`) and what (`type` or `template`)."""

    name: Name


@change(cron="30 2 * * *", priority=20)
class ScheduleChange(_ScheduleFields, total=False):
    """What to change; omitted fields keep their values."""

    name: Name
    overlap: Overlap


class _EndpointFields(_TimingRequest, total=False):
    catch_up: Annotated[Literal["latest"], Keywords(default="latest")]
    overlap: Annotated[Literal["skip"], Keywords(default="skip")]
    adaptive: Annotated[Literal[True], Keywords(default=True)]
    method: Annotated[Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], Keywords(default="GET")]
    headers: dict[str, str] | None
    body: Annotated[Any, Keywords(default=None)]
    timeout_s: Annotated[CallS, Keywords(default=30)]
    max_execution_s: Annotated[CallS, Keywords(default=60)]
    max_response_kb: Annotated[int, Keywords(default=100, minimum=1, maximum=field_bounds.LARGEST_RESPONSE_KB)]


@request(name="shop", url="https://example.org/health", interval_s=60)
class EndpointRequest(_EndpointFields):
    """A URL to call, and when."""

    name: Name
    url: Url


@change(interval_s=300, max_interval_s=3600)
class EndpointChange(_EndpointFields, total=False):
    """What to change; omitted fields keep their values."""

    name: Name
    url: Url


@request(interval_s=10, ttl_s=900, reason="the shop answers slowly")
class HintRequest(TypedDict, total=False):
    """Another pace, a run at a time, or both."""

    interval_s: IntervalS | None
    next_run_at: Instant | None
    ttl_s: TimeoutS | None
    reason: Reason | None


@request(until="2026-02-01T06:00:00.000Z", reason="the shop is rebuilt")
class SchedulePauseRequest(TypedDict, total=False):
    until: Annotated[Instant | None, Keywords(description="Left out: until somebody resumes it.")]
    reason: Reason | None


LabelText = Annotated[str, Keywords(description="A label, written as name=value.", maxLength=500)]


@request(ids=["01890a5d-ac96-774b-bcce-b302099a8057"])
class BulkResumeRequest(TypedDict, total=False):
    ids: Annotated[list[str] | None, Keywords(description="Left out: all that are paused.")]
    label: LabelText | None


@request(label="team=shop", reason="code freeze")
class BulkPauseRequest(TypedDict, total=False):
    ids: Annotated[list[str] | None, Keywords(description="Ids or names; left out: all that have the label.")]
    label: LabelText | None
    until: Annotated[Instant | None, Keywords(description="Left out: until somebody resumes them.")]
    reason: Reason | None


@request(cron="30 2 * * *", timezone="Europe/Berlin", after="2026-03-28T00:00:00.000Z", n=3)
class PreviewRequest(TypedDict, total=False):
    cron: CronText | None
    interval_s: IntervalS | None
    timezone: Zone | None
    dst: Dst | None
    after: Instant | None
    n: Annotated[int, Keywords(minimum=1, maximum=field_bounds.MOST_PREVIEWED)] | None


# --- answers ------------------------------------------------------------------------------------------------


class _Scheduled(TypedDict):
    id: Id
    name: str
    enabled: bool
    priority: int | None
    webhook_url: str | None
    labels: Labels | None


class _ScheduledJob(_Scheduled):
    template_id: Id | None
    type: str | None
    params: JsonObject | None
    resource: str | None
    retry_policy: RetryPolicyPart | None
    timeout_s: float | None
    cancel_grace_s: float | None


class _ScheduledCall(_Scheduled):
    url: str
    method: str
    headers: dict[str, str]
    body: Any
    timeout_s: float
    max_execution_s: float
    max_response_kb: int
    resource: str


class _Timing(TypedDict):
    """When schedules and endpoints run, and why then."""

    cron: str | None
    interval_s: float | None
    timezone: str
    dst: Dst
    jitter_s: float
    start_at: Instant | None
    end_at: Instant | None
    catch_up: CatchUp
    catch_up_limit: int
    misfire_grace_s: float | None
    overlap: Overlap
    adaptive: bool
    min_interval_s: float | None
    max_interval_s: float | None
    paused_until: Instant | None
    paused_indefinitely: bool
    pause_reason: str | None
    hint_interval_s: float | None
    hint_interval_expires_at: Instant | None
    hint_interval_reason: str | None
    hint_next_run_at: Instant | None
    hint_next_run_expires_at: Instant | None
    hint_next_run_reason: str | None
    failure_count: int
    last_run_at: Instant | None
    next_run_at: Instant | None
    fires_at: Annotated[Instant | None, Keywords(description="`next_run_at` with its jitter: when it fires.")]
    last_decision: JsonObject | None
    trouble: str | None
    warnings: list[str]
    version: int
    created_at: Instant


class Schedule(_ScheduledJob, _Timing):
    pass


class Endpoint(_ScheduledCall, _Timing):
    pass


class Occurrence(TypedDict):
    id: Id
    schedule_id: Id
    due_at: Instant
    status: OccurrenceStatus
    job_id: Id | None
    reason: str | None
    count: int
    recorded_at: Instant
    late_s: float | None


class TriggeredJob(Job):
    occurrence: Occurrence


class PreviewedFire(TypedDict):
    at: Instant
    local: str
    note: Literal["gap", "fold"] | None


class ClockChange(TypedDict):
    """When the clocks of the zone change next, and what they show just before and then."""

    at: Instant
    before: str
    after: str


class Preview(TypedDict):
    items: list[PreviewedFire]
    clock_change: ClockChange | None


@open_object
class ScheduleExplanation(TypedDict):
    state: str
    summary: str
    reasons: list[JsonObject]


@open_object
class EndpointHealth(TypedDict):
    endpoint_id: Id
    failure_count: int
    windows: JsonObject
    streak: JsonObject | None
    last_run: JsonObject | None


class EndpointTest(TypedDict):
    ok: bool
    error: str | None
    error_kind: str | None
    status_code: int | None
    headers: dict[str, str] | None
    body: Any
    truncated: bool | None
    duration_s: float | None
