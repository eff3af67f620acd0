"""Direct requests, webhooks, workers, events, figures, health and sessions."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from holdbeat.schemas.base import Id, Instant, JsonObject, Keywords, Url, change, open_object, request
from holdbeat.schemas.field_bounds import LONGEST_NAME, LONGEST_SLOT_TTL_S, LONGEST_SLOT_WAIT_S

ReservationStatus = Literal["ACTIVE", "RELEASED", "EXPIRED"]
DeliveryStatus = Literal["PENDING", "DELIVERED", "FAILED"]
SlotWaitS = Annotated[float, Keywords(minimum=0, maximum=LONGEST_SLOT_WAIT_S)]
SlotTtlS = Annotated[float, Keywords(minimum=1, maximum=LONGEST_SLOT_TTL_S)]

# --- direct requests ----------------------------------------------------------------------------------------


@request(params={"prompt": "a fox"}, wait_s=60)
class DirectRequest(TypedDict, total=False):
    params: JsonObject | None
    wait_s: Annotated[
        SlotWaitS | None, Keywords(description="How long to wait for a slot; at most the server's direct_wait_s.")
    ]
    preempt: Annotated[bool | None, Keywords(description="May interrupt a preemptible job if no slot is free.")]


@open_object
@request(prompt="a fox")
class MappedDirectRequest(DirectRequest, total=False):
    """The fields of a direct request, or the params by themselves."""


@open_object
@request(prompt="a fox")
class BareParams(TypedDict):
    """The params of the job type."""


class DirectAnswer(TypedDict):
    reservation_id: Id
    outcome: Literal["COMPLETED", "SKIPPED"]
    result: Any
    waited_s: float
    ran_s: float
    reason: NotRequired[Annotated[str | None, Keywords(default=None, description="Why it was skipped.")]]


@request(resource="ollama", ttl_s=60)
class SlotRequest(TypedDict):
    """Which slot to borrow, and for how long."""

    resource: Annotated[str, Keywords(minLength=1, maxLength=LONGEST_NAME)]
    ttl_s: NotRequired[
        Annotated[
            SlotTtlS | None, Keywords(default=60, description="After so long without being extended, the slot is lost.")
        ]
    ]
    wait_s: NotRequired[
        Annotated[
            SlotWaitS | None, Keywords(description="How long to wait for a slot; at most the server's direct_wait_s.")
        ]
    ]


@request(ttl_s=60)
class ExtendRequest(TypedDict, total=False):
    """For how long from now."""

    ttl_s: NotRequired[
        Annotated[SlotTtlS | None, Keywords(description="Without it, as long again as it was reserved for.")]
    ]


class BorrowedSlot(TypedDict):
    id: Id
    resource: str
    granted_at: Instant
    expires_at: Annotated[Instant, Keywords(description="When it is lost unless it is extended.")]
    slot: Annotated[int | None, Keywords(description="Its number within the resource, from 0.")]
    fence: Annotated[int, Keywords(description="Grows with every start of work in the store.")]


class Chunk(TypedDict):
    sequence: int
    at: Instant
    chunk: Annotated[Any, Keywords(description="Text, or any JSON that the handler emitted.")]


class ReservationProgress(TypedDict):
    fraction: float | None
    message: str | None


class Reservation(TypedDict):
    id: Id
    kind: Literal["direct", "slot", "gate"]
    type: str
    title: str
    client: Annotated[str | None, Keywords(description="Who asked.")]
    resource: str
    status: ReservationStatus
    requested_at: Instant
    granted_at: Instant | None
    finished_at: Instant | None
    expires_at: Instant
    owner: str | None
    worker_id: str | None
    fence: int | None
    slot: Annotated[int | None, Keywords(description="The number of its slot within the resource, from 0.")]
    outcome: Literal["COMPLETED", "FAILED", "SKIPPED", "CANCELLED"] | None
    error: str | None
    estimated_start: Annotated[Instant | None, Keywords(description="Of one that waits, where it can be known.")]


class ReservationDetail(Reservation):
    """A reservation with what is kept of a direct request."""

    params: JsonObject
    progress: ReservationProgress | None
    result: Any
    error_kind: str | None


# --- API keys -----------------------------------------------------------------------------------------------

KeyScope = Literal["read", "write", "admin"]


@request(name="deploy", scope="write", expires_s=2_592_000)
class KeyRequest(TypedDict):
    """Whose key it is, and what it may do."""

    name: Annotated[str, Keywords(minLength=1, maxLength=LONGEST_NAME)]
    scope: NotRequired[Annotated[KeyScope, Keywords(default="write")]]
    expires_s: NotRequired[Annotated[float | None, Keywords(description="seconds until it expires; null: never")]]


class ApiKey(TypedDict):
    id: Id
    name: str
    prefix: Annotated[str, Keywords(description="Its first characters, to tell keys apart.")]
    scope: KeyScope
    created_at: Instant
    last_used_at: Annotated[Instant | None, Keywords(description="To the minute.")]
    expires_at: Instant | None
    revoked_at: Instant | None


class NewApiKey(ApiKey):
    key: Annotated[str, Keywords(description="The key itself. It is shown this once.")]


# --- webhooks -----------------------------------------------------------------------------------------------

WebhookEvent = Literal[
    "job.run.completed",
    "job.run.failed",
    "job.run.skipped",
    "job.cancelled",
    "job.permanently_failed",
    "group.finished",
]
SecretText = Annotated[str | None, Keywords(description="`whsec_` and 24 to 64 bytes in base64; made if left out.")]


@request(url="https://example.org/hook", events=["job.run.failed", "job.permanently_failed"])
class WebhookRequest(TypedDict):
    """A URL, and the events that are sent to it."""

    url: Url
    events: NotRequired[Annotated[list[WebhookEvent] | None, Keywords(description="Left out or empty: all of them.")]]
    secret: NotRequired[SecretText]


@change(events=["job.run.failed"], enabled=True)
class WebhookChange(TypedDict, total=False):
    """What to change; omitted fields keep their values. A secret is not changed but rotated."""

    url: Url
    events: list[WebhookEvent] | None
    enabled: bool
    secret: Literal["[redacted]"]


@request(secret="whsec_" + "AbCd" * 11 + "AA==")
class RotateRequest(TypedDict, total=False):
    secret: SecretText


class WebhookSecret(TypedDict):
    secret: str
    previous_secret: Annotated[str | None, Keywords(description="Signs too, for 24 h after a rotation.")]
    rotated_at: Instant | None


class Webhook(TypedDict):
    id: Id
    url: str
    events: list[str]
    secret: Annotated[str, Keywords(description="Shown when it is made or rotated; a mark afterwards.")]
    enabled: bool
    disabled_reason: str | None
    rotated_at: Instant | None
    version: int
    created_at: Instant


class Delivery(TypedDict):
    id: Id
    webhook_id: Id | None
    job_id: Id | None
    group_id: Id | None
    event: str
    url: str
    payload: JsonObject
    status: DeliveryStatus
    attempts: int
    next_attempt_at: Instant | None
    waits_until: Instant | None
    waits_because: str | None
    created_at: Instant
    delivered_at: Instant | None
    last_status_code: int | None
    last_error: str | None


# --- workers, job types, events, figures --------------------------------------------------------------------


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
    started_at: Instant | None
    heartbeat_at: Instant | None
    expires_at: Instant | None
    stopping_at: Instant | None
    stopped_at: Instant | None
    memory_bytes: int | None
    cpu_share: float | None


class JobType(TypedDict):
    name: str
    description: str | None
    aliases: list[str]
    schema: JsonObject
    defaults: JsonObject
    announced_at: Instant | None


class Event(TypedDict):
    id: int
    name: str
    at: Instant
    job_id: str | None
    run_id: str | None
    worker_id: str | None
    group_id: str | None
    schedule_id: str | None
    data: JsonObject


@open_object
class Stats(TypedDict):
    jobs: dict[str, int]
    resources: dict[str, JsonObject]
    waits: Annotated[
        dict[str, int],
        Keywords(description="Chains that wait without a slot: sleep, signal, question, child; and upstream."),
    ]
    runs: dict[str, dict[str, int]]
    workers: int
    zombies_recovered: int
    stale_results: int
    schedules: int


class AttentionItem(TypedDict):
    """Something that a person should look at."""

    kind: Annotated[
        str, Keywords(description="paused, log, no_worker, starved, failed, failing, delivery, or an event.")
    ]
    text: str
    detail: str | None
    advice: Annotated[str, Keywords(description="What to do about it.")]
    since: Instant | None
    last_at: Instant | None
    count: int
    job_id: Id | None
    schedule_id: Id | None
    type: str | None
    resource: str | None
    can_be_seen: Annotated[bool, Keywords(description="Whether it goes when it is marked as seen.")]


@request(name="zombie.found")
class SeenRequest(TypedDict, total=False):
    name: Annotated[str | None, Keywords(description="The event to mark as seen; all without it.")]


class Health(TypedDict):
    status: Literal["ok"]


@open_object
class Check(TypedDict):
    ok: bool
    detail: str


class Readiness(TypedDict):
    ready: Literal[True]
    checks: dict[str, Check]


@request(key="hb_a-key-from-holdbeat-keys-create")
class LoginRequest(TypedDict):
    key: str
