"""The Reservation: a claim on the next free slot of a pool, outside the queue.

A direct request, a borrowed slot and a request through a gate are reservations. They wait in one line, and limits count
them like runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar


class ReservationStatus(StrEnum):
    ACTIVE = "ACTIVE"
    RELEASED = "RELEASED"
    EXPIRED = "EXPIRED"


class ReservationKind(StrEnum):
    DIRECT = "direct"
    """A worker runs a handler in the slot."""
    SLOT = "slot"
    """A program borrowed the slot for work of its own, until it gives the slot back or its time is over."""
    GATE = "gate"
    """A server passes a request on to an upstream while it holds the slot."""


class ReservationOutcome(StrEnum):
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


@dataclass(slots=True)
class Reservation:
    id: str
    type: str
    resource: str
    status: ReservationStatus
    requested_at: datetime
    expires_at: datetime
    owner: str | None
    """The worker id of the process in which the client waits."""
    params: dict[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    cancel_grace_s: float | None = 10.0
    granted_at: datetime | None = None
    finished_at: datetime | None = None
    outcome: ReservationOutcome | None = None
    error: str | None = None
    error_kind: str | None = None
    result: Any = None
    worker_id: str | None = None
    fence: int | None = None
    cancel_requested_at: datetime | None = None
    partition: str = ""
    weight: int = 1
    preempts: bool = False
    """Whether work that agreed to it may be interrupted so that this gets a slot."""
    kind: ReservationKind = ReservationKind.DIRECT
    title: str = ""
    client: str | None = None
    """Who asked: the name of the key, the command line, or the address of the client."""
    ttl_s: float | None = None
    """For how long a slot without a handler is held without being extended."""
    number: int | None = None
    """That of its slot within the resource, from 0; None where nothing limits the slots of the resource."""
    trace: str | None = None
    """W3C traceparent of the request, so that the run's span can link to it."""
    affinity: ClassVar[str] = ""
    """Only jobs have one."""

    @property
    def is_direct(self) -> bool:
        """Whether a worker runs a handler for it; the others hold a slot without one."""
        return self.kind is ReservationKind.DIRECT

    @property
    def waits(self) -> bool:
        return self.status is ReservationStatus.ACTIVE and self.granted_at is None


def slot_type(resource: str) -> str:
    """The type as which a borrowed slot is counted. No job type has a slash in its name."""
    return f"slot/{resource}"


def gate_type(path: str) -> str:
    """The type as which requests through the gate at this path are counted."""
    return f"gate{path}"
