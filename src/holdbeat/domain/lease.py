"""The Lease: proof that one worker holds one slot for one JobRun, or one direct request, now.

Ownership is this row and nothing else: the store refuses every write for a run without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdbeat.domain.errors import SettingsError
from holdbeat.domain.job import Job
from holdbeat.domain.reservation import Reservation
from holdbeat.domain.run import Outcome
from holdbeat.schemas.field_bounds import YEAR_S

HTTP_RESOURCE = "http"
"""Calls on this resource have a lane of their own in every worker; its slots are numbered below zero."""


@dataclass(slots=True)
class Lease:
    id: str
    """The JobRun's id, or the Reservation's."""
    worker_id: str
    slot: int
    resource: str
    type: str
    fence: int
    acquired_at: datetime
    heartbeat_at: datetime
    expires_at: datetime
    job_id: str | None = None
    reservation_id: str | None = None
    number: int | None = None
    """That of its slot within the resource, from 0; None where nothing limits the slots of the resource."""
    numbers: tuple[int, ...] = ()
    """Those of all its slots, if it weighs more than one."""

    @property
    def slot_numbers(self) -> tuple[int, ...]:
        """The numbers of all its slots within the resource; none where nothing limits them."""
        return self.numbers or (() if self.number is None else (self.number,))


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """For how long a claim is good, how often it is renewed, and how long recovery waits beyond its end."""

    lease_s: float = 300
    heartbeat_s: float = 30
    grace_s: float = 60

    def __post_init__(self) -> None:
        if not (0 < self.lease_s <= YEAR_S and self.heartbeat_s > 0 and 0 <= self.grace_s <= YEAR_S):
            raise SettingsError(
                "lease_s and heartbeat_s must be positive, grace_s not negative, none longer than a year.",
                field="lease_s",
            )
        if self.heartbeat_s >= self.lease_s:
            raise SettingsError(
                f"heartbeat_s ({self.heartbeat_s:g}) must be shorter than lease_s ({self.lease_s:g}), or every "
                "lease would end before its first renewal. Set heartbeat_s to a tenth of lease_s.",
                field="heartbeat_s",
            )

    @property
    def shortest_s(self) -> float:
        """No lease is shorter: one failed heartbeat must not cost it."""
        return min(self.lease_s, 2 * self.heartbeat_s)

    def expiry(self, now: datetime, timeout_s: float | None = None, cancel_grace_s: float | None = None) -> datetime:
        """When a lease that is taken or renewed now runs out.

        A lease need not outlast its run: at `timeout_s` the worker tells the handler to stop, and `cancel_grace_s`
        later kills it, whether or not it can reach the store. So a shorter limit makes a shorter lease, and what a
        dead worker held is recovered sooner.
        """
        lease_s = self.lease_s
        if timeout_s is not None and cancel_grace_s is not None:
            lease_s = min(lease_s, max(timeout_s + cancel_grace_s, self.shortest_s))
        return now + timedelta(milliseconds=round(lease_s * 1000))

    def is_lost(self, expires_at: datetime, now: datetime) -> bool:
        """Whether recovery may end a lease when nothing else is known about its holder."""
        return now > expires_at + timedelta(seconds=self.grace_s)


PRESETS = {
    "development": LeaseTerms(lease_s=60, heartbeat_s=10),
    "production": LeaseTerms(lease_s=300, heartbeat_s=30),
    "high-reliability": LeaseTerms(lease_s=180, heartbeat_s=15),
}


@dataclass(slots=True)
class Claim:
    """One claimed piece of work: a lease, whose id is the run's, and a Job or a direct request."""

    lease: Lease
    work: Job | Reservation

    @property
    def job(self) -> Job | None:
        return self.work if isinstance(self.work, Job) else None

    @property
    def reservation(self) -> Reservation | None:
        return self.work if isinstance(self.work, Reservation) else None


@dataclass(slots=True)
class Settlement:
    """A worker's word that one of its leases has ended, and how."""

    lease_id: str
    worker_id: str
    fence: int
    outcome: Outcome
    group_id: str | None = None
    schedule_id: str | None = None
    """The Job's group and schedule, as the claim showed them: locked before the job itself."""
