"""The Reservation: a direct request's claim on the next free slot of its pool."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any


class ReservationStatus(StrEnum):
    ACTIVE = "ACTIVE"
    RELEASED = "RELEASED"
    EXPIRED = "EXPIRED"


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

    @property
    def waits(self) -> bool:
        return self.status is ReservationStatus.ACTIVE and self.granted_at is None
