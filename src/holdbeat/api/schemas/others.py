"""Direct requests, webhooks, workers, events, figures and health; and the legacy API."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from holdbeat.api.schemas.base import (
    Answer,
    Id,
    Instant,
    Params,
    Request,
    Url,
    with_example,
    without_defaults,
)


class DirectRequest(Request):
    model_config = with_example(params={"prompt": "a fox"}, wait_s=60)
    params: Params | None = None
    wait_s: Annotated[float, Field(ge=0, le=86_400)] | None = Field(
        default=None, description="How long to wait for a slot; at most the server's direct_wait_s."
    )


class DirectAnswer(Answer):
    reservation_id: Id
    outcome: Literal["COMPLETED", "SKIPPED"]
    result: Any
    waited_s: float
    ran_s: float
    reason: str | None = Field(default=None, description="Why it was skipped.")


class Reservation(Answer):
    id: Id
    type: str
    resource: str
    status: Literal["ACTIVE", "RELEASED", "EXPIRED"]
    requested_at: Instant
    granted_at: Instant | None
    finished_at: Instant | None
    expires_at: Instant
    owner: str | None
    outcome: Literal["COMPLETED", "FAILED", "SKIPPED", "CANCELLED"] | None
    error: str | None
    estimated_start: Instant | None = Field(description="Of one that waits, where it can be known.")


class ReservationPage(Answer):
    items: list[Reservation]
    next_cursor: str | None


WebhookEvent = Literal[
    "job.run.completed",
    "job.run.failed",
    "job.run.skipped",
    "job.cancelled",
    "job.permanently_failed",
    "group.finished",
]


class WebhookRequest(Request):
    """Where to tell of which events."""

    model_config = with_example(url="https://example.org/hook", events=["job.run.failed", "job.permanently_failed"])
    url: Url
    events: list[WebhookEvent] | None = Field(default=None, description="Left out or empty: all of them.")
    secret: str | None = Field(default=None, description="`whsec_` and 24 to 64 bytes in base64; made if left out.")


class WebhookChange(Request):
    """What to change; what is left out stays. A secret is not changed but rotated."""

    model_config = without_defaults(events=["job.run.failed"], enabled=True)
    url: Url = ""
    events: list[WebhookEvent] | None = None
    enabled: bool = True
    secret: Literal["[redacted]"] = "[redacted]"


class RotateRequest(Request):
    model_config = with_example(secret="whsec_" + "AbCd" * 11 + "AA==")
    secret: str | None = Field(default=None, description="`whsec_` and 24 to 64 bytes in base64; made if left out.")


class WebhookSecret(Answer):
    secret: str
    previous_secret: str | None = Field(description="Signs too, for 24 h after a rotation.")
    rotated_at: Instant | None


class Webhook(Answer):
    id: Id
    url: str
    events: list[str]
    secret: str = Field(description="Shown when it is made or rotated; a mark afterwards.")
    enabled: bool
    disabled_reason: str | None
    rotated_at: Instant | None
    version: int
    created_at: Instant


class WebhookPage(Answer):
    items: list[Webhook]
    next_cursor: str | None


class Delivery(Answer):
    id: Id
    webhook_id: Id | None
    job_id: Id | None
    group_id: Id | None
    event: str
    url: str
    payload: dict[str, Any]
    status: Literal["PENDING", "DELIVERED", "FAILED"]
    attempts: int
    next_attempt_at: Instant | None
    created_at: Instant
    delivered_at: Instant | None
    last_status_code: int | None
    last_error: str | None


class DeliveryPage(Answer):
    items: list[Delivery]
    next_cursor: str | None


class Worker(Answer):
    id: str
    kind: str
    host: str
    pid: int
    slots: int
    http_slots: int
    types: list[str]
    resources: list[str] | None
    version: str
    started_at: Instant | None
    heartbeat_at: Instant | None
    expires_at: Instant | None
    stopping_at: Instant | None
    stopped_at: Instant | None


class WorkerPage(Answer):
    items: list[Worker]
    next_cursor: str | None


class JobType(Answer):
    name: str
    description: str | None
    aliases: list[str]
    params_schema: dict[str, Any] = Field(alias="schema")
    defaults: dict[str, Any]
    announced_at: Instant | None


class JobTypePage(Answer):
    items: list[JobType]
    next_cursor: str | None


class Event(Answer):
    id: int
    name: str
    at: Instant
    job_id: str | None
    run_id: str | None
    worker_id: str | None
    group_id: str | None
    schedule_id: str | None
    data: dict[str, Any]


class EventPage(Answer):
    items: list[Event]
    next_cursor: str | None


class Stats(Answer):
    model_config = ConfigDict(extra="allow")
    jobs: dict[str, int]
    resources: dict[str, Any]
    runs: dict[str, Any]
    workers: Any
    zombies_recovered: int
    stale_results: int
    schedules: Any


class Health(Answer):
    status: Literal["ok"]


class Check(Answer):
    model_config = ConfigDict(extra="allow")
    ok: bool
    detail: str


class Readiness(Answer):
    ready: Literal[True]
    checks: dict[str, Check]


class LegacyTrigger(Request):
    """The params of the job."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [{"prompt": "a fox"}]})


class LegacyBatchJob(Request):
    model_config = with_example(type="story", params={"prompt": "a fox"})
    type: str
    params: Params | None = None


class LegacyBatch(Request):
    model_config = with_example(jobs=[{"type": "story", "params": {"prompt": "a fox"}}, {"type": "story"}])
    jobs: Annotated[list[LegacyBatchJob], Field(min_length=1)]


class LegacyAccepted(Answer):
    job_id: Id
    status: str


class LegacyBatchAccepted(Answer):
    batch_id: Id


class LegacyJob(Answer):
    job_id: Id
    type: str
    params: Params
    status: Literal["queued", "running", "succeeded", "failed", "cancelled", "skipped"]
    result: Any
    error: str | None
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None


class LegacyJobList(Answer):
    jobs: list[LegacyJob]


class LegacyBatchStatus(Answer):
    batch_id: Id
    status: Literal["queued", "running", "succeeded", "partial", "failed"]
    jobs: list[LegacyJob]


class LoginRequest(Request):
    model_config = with_example(key="hb_a-key-from-holdbeat-keys-create")
    key: str
