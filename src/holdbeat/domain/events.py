"""Events: entries of the append-only log of what the scheduler decided.

Every name stands here once; a store writes no event that is not listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from holdbeat.domain.clock import iso

JOB_QUEUED: Final = "job.queued"
JOB_CLAIMED: Final = "job.claimed"
JOB_CHANGED: Final = "job.changed"
JOB_MOVED: Final = "job.moved"
JOB_PREEMPTED: Final = "job.preempted"
JOB_PASSED_BY: Final = "job.passed_by"
CANCEL_REQUESTED: Final = "job.cancel_requested"
JOB_CANCELLED: Final = "job.cancelled"
JOB_CONTINUED: Final = "job.continued"
SIGNAL_SENT: Final = "signal.sent"
QUESTION_ASKED: Final = "question.asked"
QUESTION_ANSWERED: Final = "question.answered"
RUN_ENDED: Final = "run.ended"
RUN_OVERDUE: Final = "run.overdue"
RETRY_CREATED: Final = "retry.created"
RETRIES_EXHAUSTED: Final = "retry.exhausted"
GROUP_FINISHED: Final = "group.finished"
LEASE_EXPIRED: Final = "lease.expired"
STALE_RESULT: Final = "lease.stale_result"
ZOMBIE_FOUND: Final = "zombie.found"
RECOVERY_ACTED: Final = "recovery.acted"
QUEUE_PAUSED: Final = "queue.paused"
QUEUE_RESUMED: Final = "queue.resumed"
QUEUE_STARVED: Final = "queue.starved"
LIMIT_CHANGED: Final = "limit.changed"
LIMIT_THROTTLED: Final = "limit.throttled"
RESERVATION_REQUESTED: Final = "reservation.requested"
RESERVATION_GRANTED: Final = "reservation.granted"
RESERVATION_RELEASED: Final = "reservation.released"
RESERVATION_EXPIRED: Final = "reservation.expired"
SCHEDULE_FIRED: Final = "schedule.fired"
SCHEDULE_SKIPPED: Final = "schedule.skipped"
SCHEDULE_MISSED: Final = "schedule.missed"
SCHEDULE_CHANGED: Final = "schedule.changed"
DUPLICATE_REFUSED: Final = "schedule.duplicate_refused"
SCHEDULE_WARNED: Final = "schedule.warned"
PLAN_DECIDED: Final = "schedule.planned"
TEMPLATE_ARCHIVED: Final = "template.archived"
CLOCK_JUMPED: Final = "clock.jumped"
WEBHOOK_FAILED: Final = "webhook.failed"
WEBHOOK_DISABLED: Final = "webhook.disabled"
KEY_CREATED: Final = "key.created"
KEY_REVOKED: Final = "key.revoked"
WORKER_STARTED: Final = "worker.started"
WORKER_STOPPED: Final = "worker.stopped"
SHUTDOWN_BEGUN: Final = "shutdown.begun"
SHUTDOWN_ENDED: Final = "shutdown.ended"
SETTINGS_IN_FORCE: Final = "settings.in_force"
STORE_PRUNED: Final = "store.pruned"


@dataclass(slots=True)
class Event:
    """One decision. `data` holds what a person needs to understand it, never a secret."""

    name: str
    at: datetime
    job_id: str | None = None
    run_id: str | None = None
    worker_id: str | None = None
    group_id: str | None = None
    schedule_id: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    id: int | None = None


def differences(before: object, after: object, names: Iterable[str]) -> dict[str, list[Any]]:
    """The fields that an edit changed, of these, each from and to."""
    changed = {name: [getattr(before, name), getattr(after, name)] for name in names}
    return {
        name: [iso(value) if isinstance(value, datetime) else value for value in pair]
        for name, pair in changed.items()
        if pair[0] != pair[1]
    }
