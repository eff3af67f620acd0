"""The Job: one intention to run something once, as a snapshot of type, params and policy.

Guards the states: they change in one direction only, and nothing ever goes back to QUEUED.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any

from holdbeat.domain.dependencies import Edge, Upstream
from holdbeat.domain.errors import Conflict, Invalid
from holdbeat.domain.run import JobRun
from holdbeat.domain.steps import OpenStep
from holdbeat.schemas.field_bounds import ATTEMPTS_MAX, YEAR_S


class UniqueWhile(StrEnum):
    """How long a Job has its key."""

    QUEUED = "queued"
    """Until it starts."""
    UNFINISHED = "unfinished"
    """Until its chain has ended."""


class OnDuplicate(StrEnum):
    """The policy of a submission if a Job has its key already."""

    RETURN = "return"
    REFUSE = "refuse"
    REPLACE = "replace"
    PUSH_BACK = "push_back"


def pushed_back(
    created_at: datetime, not_before: datetime | None, wanted: datetime, longest: timedelta | None
) -> datetime:
    """The new start of a Job that is pushed back: never earlier than before, and not beyond `longest` in all."""
    start = wanted if not_before is None else max(not_before, wanted)
    if longest is None:
        return start
    last = created_at + longest
    return min(start, max(last, not_before or created_at))


SHELL = "shell"
"""The job type that runs a command; only an admin may make such jobs."""


class JobStatus(StrEnum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"
    CONTINUED = "CONTINUED"
    """Its handler waits, and goes on in the next job of the chain."""

    @property
    def is_terminal(self) -> bool:
        return self not in (JobStatus.QUEUED, JobStatus.RUNNING)


class JobEvent(StrEnum):
    """The events that change the state of a Job."""

    CLAIM = "claim"
    COMPLETE = "complete"
    FAIL = "fail"
    SKIP = "skip"
    CANCEL = "cancel"
    CONTINUE = "continue"


TRANSITIONS: dict[tuple[JobStatus, JobEvent], JobStatus] = {
    (JobStatus.QUEUED, JobEvent.CLAIM): JobStatus.RUNNING,
    (JobStatus.QUEUED, JobEvent.SKIP): JobStatus.SKIPPED,
    (JobStatus.QUEUED, JobEvent.CANCEL): JobStatus.CANCELLED,
    (JobStatus.RUNNING, JobEvent.COMPLETE): JobStatus.COMPLETED,
    (JobStatus.RUNNING, JobEvent.FAIL): JobStatus.FAILED,
    (JobStatus.RUNNING, JobEvent.SKIP): JobStatus.SKIPPED,
    (JobStatus.RUNNING, JobEvent.CANCEL): JobStatus.CANCELLED,
    (JobStatus.RUNNING, JobEvent.CONTINUE): JobStatus.CONTINUED,
}
"""The whole state machine. What is not listed is refused."""


def transition(status: JobStatus, event: JobEvent) -> JobStatus:
    """The state after `event`; refuses what the table does not list."""
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise Conflict(
            f"A job that is {status} cannot {event}; only jobs that are "
            f"{' or '.join(s for s, e in TRANSITIONS if e is event)} can.",
            code="wrong_state",
        ) from None


class Hold(IntEnum):
    """Why a QUEUED job is kept out of the ready queue. The claim looks only at READY ones."""

    READY = 0
    DELAYED = 1
    """`not_before` lies ahead."""
    GATED = 2
    """An earlier member of its sequential group has not ended."""
    OVERLAPPED = 3
    """The unfinished job of the same schedule goes first."""
    WAITING = 4
    """Its chain waits for something that has no time of its own, such as a signal."""
    BLOCKED = 5
    """Something that it depends on has not ended."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how late a failed Job is tried again."""

    max_attempts: int = 3
    base_delay_s: float = 10
    max_delay_s: float = 3600
    jitter: float = 0

    def __post_init__(self) -> None:
        if not 0 <= self.max_attempts <= ATTEMPTS_MAX:
            raise Invalid(f"max_attempts must be between 0 and {ATTEMPTS_MAX}.", field="retry_policy.max_attempts")
        if not 0 <= self.base_delay_s <= YEAR_S:
            raise Invalid("base_delay_s must be between 0 and one year.", field="retry_policy.base_delay_s")
        if not 0 <= self.max_delay_s <= YEAR_S:
            raise Invalid("max_delay_s must be between 0 and one year.", field="retry_policy.max_delay_s")
        if not 0 <= self.jitter <= 1:
            raise Invalid("jitter is a fraction between 0 and 1.", field="retry_policy.jitter")

    def as_dict(self) -> dict[str, float]:
        return {
            "max_attempts": self.max_attempts,
            "base_delay_s": self.base_delay_s,
            "max_delay_s": self.max_delay_s,
            "jitter": self.jitter,
        }


DEFAULT_RETRY_POLICY = RetryPolicy()
DEFAULT_CANCEL_GRACE_S = 10.0
DEFAULT_RESOURCE = "default"
PREEMPTIBLE, PREEMPTS = 1, 2


@dataclass(slots=True)
class Job:
    id: str
    type: str
    params: dict[str, Any]
    status: JobStatus
    priority: int
    position: int
    resource: str
    retry_policy: RetryPolicy
    created_at: datetime
    template_id: str | None = None
    schedule_id: str | None = None
    scheduled_for: datetime | None = None
    group_id: str | None = None
    sequence: int | None = None
    retry_of: str | None = None
    retry_kind: str | None = None
    retried_by: str | None = None
    """The next job of the chain: the automatic retry of a FAILED one, the continuation of a CONTINUED one."""
    permanently_failed: bool = False
    timeout_s: float | None = None
    cancel_grace_s: float | None = DEFAULT_CANCEL_GRACE_S
    not_before: datetime | None = None
    idempotency_key: str | None = None
    webhook_url: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None
    hold: Hold = Hold.READY
    attempt: int = 0
    """How many links lead back to the root of the chain."""
    trace: str | None = None
    """W3C traceparent of the submission, so that the run's span can link to it."""
    partition: str = ""
    """By which limits may count it, such as a customer; empty if it has none."""
    title: str = ""
    """One line that says what it is about (`domain.title`)."""
    root_id: str | None = None
    """The first job of the chain; None for that job itself."""
    waits: list[dict[str, Any]] | None = None
    """What the handler waited for when the job before this one was CONTINUED."""
    on_upstream: str | None = None
    """What it does if something that it depends on does not complete; None if it depends on nothing."""
    is_awaited: bool = False
    """Whether other work depends on the end of its chain."""
    unique_key: str | None = None
    """Of the jobs with one key at most one waits, or is unfinished."""
    unique_while: str | None = None
    expires_at: datetime | None = None
    """If it has not started by then, it is skipped."""
    parent_id: str | None = None
    """The first job of the chain whose handler made it."""
    is_detached: bool = False
    """Whether it goes on if its parent is cancelled."""
    weight: int = 1
    """How many slots of its resource it takes."""
    affinity: str = ""
    """What a worker keeps loaded for such jobs, such as a model; empty if nothing."""
    preemption: int = 0
    """The sum of PREEMPTIBLE, if it may be interrupted for others, and PREEMPTS, if others may be for it."""
    worker_id: str | None = None
    heartbeat_at: datetime | None = None
    lease_expires_at: datetime | None = None
    run: JobRun | None = None
    """Filled in where a reader asked for it."""
    manual_retries: tuple[str, ...] = ()
    progress: dict[str, Any] | None = None
    open_steps: tuple[OpenStep, ...] = ()
    """The steps in which its handler is; of one that failed, those in which it was."""
    after: tuple[Edge, ...] = ()
    """What its chain depends on."""

    @property
    def preempts(self) -> bool:
        """Whether preemptible work may be interrupted so that it gets a slot."""
        return bool(self.preemption & PREEMPTS)

    @property
    def preemptible(self) -> bool:
        """Whether it may be interrupted, and tried again, for work that preempts."""
        return bool(self.preemption & PREEMPTIBLE)

    @property
    def chain_id(self) -> str:
        """The id of the first job of the chain, which is its own for the first."""
        return self.root_id or self.id

    @property
    def continued_by(self) -> str | None:
        """The job in which the handler goes on after its wait."""
        return self.retried_by if self.status is JobStatus.CONTINUED else None

    @property
    def current_waits(self) -> list[dict[str, Any]]:
        """What the chain waits for now, in parallel."""
        is_waiting = self.status is JobStatus.QUEUED and self.hold in (Hold.DELAYED, Hold.WAITING)
        return self.waits or [] if is_waiting else []

    @property
    def waits_for(self) -> dict[str, Any] | None:
        """The first of what the chain waits for now."""
        waits = self.current_waits
        return waits[0] if waits else None


@dataclass(slots=True)
class NewJob:
    """A Job to be stored, with all defaults already merged in: the snapshot of the submission."""

    type: str
    params: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    resource: str = DEFAULT_RESOURCE
    retry_policy: RetryPolicy = DEFAULT_RETRY_POLICY
    timeout_s: float | None = None
    cancel_grace_s: float | None = DEFAULT_CANCEL_GRACE_S
    not_before: datetime | None = None
    idempotency_key: str | None = None
    request_hash: str | None = None
    """Hash of the request as it was sent; two requests with one key must have the same (QUE-01)."""
    webhook_url: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    template_id: str | None = None
    schedule_id: str | None = None
    scheduled_for: datetime | None = None
    group_id: str | None = None
    sequence: int | None = None
    retry_of: str | None = None
    retry_kind: str | None = None
    attempt: int = 0
    position: int | None = None
    """Only a retry brings its place with it; everyone else goes to the end of the priority."""
    hold: Hold | None = None
    """Only a gate decides this ahead; otherwise it follows from `not_before`."""
    trace: str | None = None
    partition: str = ""
    title: str = ""
    root_id: str | None = None
    waits: list[dict[str, Any]] | None = None
    on_upstream: str | None = None
    is_awaited: bool = False
    unique_key: str | None = None
    unique_while: str | None = None
    expires_at: datetime | None = None
    parent_id: str | None = None
    is_detached: bool = False
    on_duplicate: str = "return"
    max_wait_s: float | None = None
    """For how long in all later jobs with its key may push its start back."""
    after: tuple[Upstream, ...] = ()
    ref: str | None = None
    """Its name for the jobs after it in the same batch."""
    actor: str | None = None
    """Who asked for it, for the Event that records it."""
    weight: int = 1
    affinity: str = ""
    preemption: int = 0


@dataclass(slots=True)
class JobTemplate:
    id: str
    name: str
    type: str
    default_params: dict[str, Any] = field(default_factory=dict)
    priority: int | None = None
    resource: str | None = None
    retry_policy: dict[str, Any] | None = None
    """The members that it sets; the others come from the job type."""
    timeout_s: float | None = None
    cancel_grace_s: float | None = None
    webhook_url: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    description: str | None = None
    archived_at: datetime | None = None
    version: int = 1
    created_at: datetime | None = None
