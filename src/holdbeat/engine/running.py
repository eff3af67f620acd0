"""Running: a claim that is being executed, and RunningSet: all of this worker's."""

from __future__ import annotations

from dataclasses import dataclass

from holdbeat.domain.job import DEFAULT_CANCEL_GRACE_S
from holdbeat.domain.lease import Claim, Settlement
from holdbeat.domain.run import Outcome
from holdbeat.handlers.stop import StopReason, StopSignal


@dataclass(slots=True, eq=False)
class Running:
    claim: Claim
    stop: StopSignal
    claimed_at: float
    """Monotonic: from here the lease's time counts until the first heartbeat."""
    is_late: bool = False
    """Whether the lease may be over: the answer to its claim came so late. It is renewed before the handler starts."""

    @property
    def cancel_grace_s(self) -> float | None:
        return self.claim.work.cancel_grace_s

    @property
    def has_handler(self) -> bool:
        """Whether a handler runs in its slot; a request through a gate has none."""
        reservation = self.claim.reservation
        return reservation is None or reservation.is_direct

    def end(self, reason: StopReason) -> None:
        """Tells the handler to end within its grace."""
        self.stop.set(reason, grace_s=self.cancel_grace_s)


def settlement_of(claim: Claim, outcome: Outcome) -> Settlement:
    """How a claim is given back to the store."""
    lease, job = claim.lease, claim.job
    group_id, schedule_id = (job.group_id, job.schedule_id) if job else (None, None)
    return Settlement(lease.id, lease.worker_id, lease.fence, outcome, group_id, schedule_id)


class RunningSet(dict[str, Running]):
    """By lease id. The heartbeat's thread and the shutdown's read it and call the methods that tell handlers to end."""

    _are_interrupted = False

    def start(self, claim: Claim, claimed_at: float) -> Running:
        entry = self[claim.lease.id] = Running(claim, StopSignal(), claimed_at)
        if self._are_interrupted:
            entry.end(StopReason.INTERRUPTED)
        return entry

    def tell(self, lease_id: str, reason: StopReason) -> None:
        entry = self.get(lease_id)
        if entry is not None:
            entry.end(reason)

    def interrupt_all(self) -> None:
        """Tells every handler to end, those included whose claim the store has not answered yet."""
        self._are_interrupted = True
        for entry in self.entries():
            entry.end(StopReason.INTERRUPTED)

    def entries(self) -> list[Running]:
        """A copy, for another thread or for a loop that changes the set."""
        return list(self.values())

    @property
    def longest_cancel_grace_s(self) -> float:
        """How long what runs here may take to end once it is told to."""
        graces = (entry.cancel_grace_s for entry in self.entries())
        return max((DEFAULT_CANCEL_GRACE_S if grace_s is None else grace_s for grace_s in graces), default=0.0)
