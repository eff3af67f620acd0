"""Schedules and Endpoints."""

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
    RetryPolicyPart,
    RetryPolicyRequest,
    TimeoutS,
    Url,
    no_default,
    with_example,
    without_defaults,
)
from holdbeat.api.schemas.jobs import Job

Dst = Literal["vixie", "skip", "shift"]
CatchUp = Literal["latest", "none", "all"]
Overlap = Literal["allow", "skip", "queue_one", "cancel_previous"]
OccurrenceStatus = Literal["fired", "skipped", "missed", "coalesced", "manual"]
CronText = Annotated[str, Field(min_length=1, max_length=256, examples=["*/5 * * * *"])]
IntervalS = Annotated[float, Field(ge=1, le=31_536_000)]
Zone = Annotated[str, Field(examples=["Europe/Berlin"])]


class _Timing(Request):
    enabled: bool = True
    cron: CronText | None = None
    interval_s: IntervalS | None = None
    timezone: Zone = "UTC"
    dst: Dst = "vixie"
    jitter_s: Annotated[float, Field(ge=0, le=3600)] = 0
    start_at: Instant | None = None
    end_at: Instant | None = None
    catch_up_limit: Annotated[int, Field(ge=1, le=10_000)] = 100
    min_interval_s: IntervalS | None = None
    max_interval_s: IntervalS | None = None
    priority: Priority | None = None
    webhook_url: Url | None = None
    labels: Labels | None = None


class _ScheduleFields(_Timing):
    catch_up: CatchUp = "latest"
    misfire_grace_s: Annotated[float, Field(ge=0, le=86_400)] | None = Field(
        default=None,
        description="A due time up to this late simply fires. Left out: 60, or the interval if that is less.",
    )
    overlap: Overlap = "allow"
    adaptive: bool = False
    type: Name | None = None
    template: Name | None = Field(default=None, description="The id or the name of a job template.")
    template_id: Id | None = None
    params: Params | None = None
    resource: Name | None = None
    retry_policy: RetryPolicyRequest | None = None
    timeout_s: TimeoutS | None = None
    cancel_grace_s: CancelGraceS | None = Field(
        default=None,
        description="How long a cancelled handler has before it is killed. Null: as its template or job type says.",
    )


class ScheduleRequest(_ScheduleFields):
    """When (`cron` or `interval_s`) and what (`type` or `template`)."""

    model_config = with_example(name="nightly", cron="0 3 * * *", timezone="Europe/Berlin", type="crawl")
    name: Name
    overlap: Overlap = Field(
        default="allow",
        description="Left out: allow, or skip if it is adaptive, for an adaptive schedule never overlaps itself.",
        json_schema_extra=no_default,
    )


class ScheduleChange(_ScheduleFields):
    """What to change; what is left out stays."""

    model_config = without_defaults(cron="30 2 * * *", priority=20)
    name: Name = ""


class _EndpointFields(_Timing):
    catch_up: Literal["latest"] = "latest"
    overlap: Literal["skip"] = "skip"
    adaptive: Literal[True] = True
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = "GET"
    headers: dict[str, str] | None = None
    body: Any = None
    timeout_s: Annotated[float, Field(ge=0.1, le=1800)] = 30
    max_execution_s: Annotated[float, Field(ge=0.1, le=1800)] = 60
    max_response_kb: Annotated[int, Field(ge=1, le=10_240)] = 100


class EndpointRequest(_EndpointFields):
    """A URL to call, and when."""

    model_config = with_example(name="shop", url="https://example.org/health", interval_s=60)
    name: Name
    url: Url


class EndpointChange(_EndpointFields):
    """What to change; what is left out stays."""

    model_config = without_defaults(interval_s=300, max_interval_s=3600)
    name: Name = ""
    url: Url = ""


class _TimingAnswer(Answer):
    id: Id
    name: str
    enabled: bool
    priority: int | None
    webhook_url: str | None
    labels: Labels | None
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
    fires_at: Instant | None = Field(description="`next_run_at` with its jitter: when it fires.")
    last_decision: dict[str, Any] | None
    trouble: str | None
    warnings: list[str]
    version: int
    created_at: Instant


class Schedule(_TimingAnswer):
    template_id: Id | None
    type: str | None
    params: Params | None
    resource: str | None
    retry_policy: RetryPolicyPart | None
    timeout_s: float | None
    cancel_grace_s: float | None


class Endpoint(_TimingAnswer):
    url: str
    method: str
    headers: dict[str, str]
    body: Any
    timeout_s: float
    max_execution_s: float
    max_response_kb: int
    resource: str


class SchedulePage(Answer):
    items: list[Schedule]
    next_cursor: str | None


class EndpointPage(Answer):
    items: list[Endpoint]
    next_cursor: str | None


class HintRequest(Request):
    """Another pace, a run at a time, or both."""

    model_config = with_example(interval_s=10, ttl_s=900, reason="the shop answers slowly")
    interval_s: IntervalS | None = None
    next_run_at: Instant | None = None
    ttl_s: Annotated[float, Field(ge=0.001, le=31_536_000)] | None = None
    reason: Reason | None = None


class SchedulePauseRequest(Request):
    model_config = with_example(until="2026-02-01T06:00:00.000Z", reason="the shop is rebuilt")
    until: Instant | None = Field(default=None, description="Left out: until somebody resumes it.")
    reason: Reason | None = None


class BulkResumeRequest(Request):
    model_config = with_example(ids=["01890a5d-ac96-774b-bcce-b302099a8057"])
    ids: list[str] | None = Field(default=None, description="Left out: all that are paused.")


class Occurrence(Answer):
    id: Id
    schedule_id: Id
    due_at: Instant
    status: OccurrenceStatus
    job_id: Id | None
    reason: str | None
    count: int
    recorded_at: Instant
    late_s: float | None


class OccurrencePage(Answer):
    items: list[Occurrence]
    next_cursor: str | None


class TriggeredJob(Job):
    occurrence: Occurrence


class PreviewRequest(Request):
    model_config = with_example(cron="30 2 * * *", timezone="Europe/Berlin", after="2026-03-28T00:00:00.000Z", n=3)
    cron: CronText | None = None
    interval_s: IntervalS | None = None
    timezone: Zone | None = None
    dst: Dst | None = None
    after: Instant | None = None
    n: Annotated[int, Field(ge=1, le=1000)] | None = None


class PreviewedFire(Answer):
    at: Instant
    local: str
    note: Literal["gap", "fold"] | None


class ClockChange(Answer):
    """When the clocks of the zone change next, and what they show just before and then."""

    at: Instant
    before: str
    after: str


class Preview(Answer):
    items: list[PreviewedFire]
    clock_change: ClockChange | None


class ScheduleExplanation(Answer):
    model_config = ConfigDict(extra="allow")
    state: str
    summary: str
    reasons: list[dict[str, Any]]


class EndpointHealth(Answer):
    model_config = ConfigDict(extra="allow")
    windows: dict[str, Any]
    streak: dict[str, Any] | None
    last_run: dict[str, Any] | None


class EndpointTest(Answer):
    ok: bool
    error: str | None
    error_kind: str | None
    status_code: int | None
    headers: dict[str, str] | None
    body: Any
    truncated: bool | None
    duration_s: float | None
