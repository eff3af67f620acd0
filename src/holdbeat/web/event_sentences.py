"""Events as sentences: who did what to which job or schedule, by name instead of by id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdbeat.domain import events
from holdbeat.observe.wording import span
from holdbeat.store.reads.names import group_names, job_titles, schedule_names
from holdbeat.store.reads.needs_attention import run_errors
from holdbeat.store.transaction import Transaction
from holdbeat.web.rendering import headline

Data = Mapping[str, Any]
LONGEST_ERROR = 160

ROUTINE = frozenset({events.JOB_CLAIMED, events.JOB_PASSED_BY, events.PLAN_DECIDED, events.RESERVATION_REQUESTED})
"""What happens all the time and says little; hidden unless asked for."""
PROBLEMS = frozenset(
    {
        events.RETRIES_EXHAUSTED,
        events.RUN_OVERDUE,
        events.LEASE_EXPIRED,
        events.STALE_RESULT,
        events.ZOMBIE_FOUND,
        events.RECOVERY_ACTED,
        events.QUEUE_STARVED,
        events.SCHEDULE_MISSED,
        events.DUPLICATE_REFUSED,
        events.SCHEDULE_WARNED,
        events.CLOCK_JUMPED,
        events.WEBHOOK_FAILED,
        events.WEBHOOK_DISABLED,
    }
)


def _because(data: Data) -> str:
    return f": {data['reason']}" if data.get("reason") else ""


def _by(data: Data) -> str:
    name = data.get("by") or data.get("actor")
    return f" by {name}" if name else ""


def _ended(data: Data) -> str:
    status = str(data.get("status") or "ended").lower()
    kind = f" ({data['error_kind']})" if data.get("error_kind") not in (None, "error") else ""
    took = f" after {span(data['duration_s'])}" if isinstance(data.get("duration_s"), int | float) else ""
    return f"{status}{kind}{took}{_because(data)}"


def _paused(data: Data, word: str) -> str:
    resource = data.get("resource")
    everything = resource in (None, "", "*")
    return f"{'the whole queue' if everything else f'the resource {resource}'} was {word}{_by(data)}{_because(data)}"


def _changed(data: Data) -> str:
    changed = data.get("changed")
    fields = f" ({', '.join(map(str, changed))})" if isinstance(changed, list) and changed else ""
    return f"{data.get('change') or 'changed'}{fields}{_by(data)}{_because(data)}"


def _throttled(data: Data) -> str:
    of = f" of {data['partition']}" if data.get("partition") else ""
    return f"throttled: no other start{of} before {data.get('until')}"


_PHRASES: dict[str, Callable[[Data], str]] = {
    events.JOB_QUEUED: lambda data: f"submitted{_by(data)}",
    events.JOB_CLAIMED: lambda data: "started",
    events.JOB_CHANGED: _changed,
    events.JOB_MOVED: lambda data: f"moved in the queue{_by(data)}",
    events.JOB_PREEMPTED: lambda data: f"interrupted for a {data.get('type')} of higher priority",
    events.JOB_PASSED_BY: lambda data: f"waited while another job for {data.get('affinity')} went first",
    events.CANCEL_REQUESTED: lambda data: f"asked to stop{_by(data)}{_because(data)}",
    events.JOB_CANCELLED: lambda data: f"cancelled{_by(data)}{_because(data)}",
    events.RUN_ENDED: _ended,
    events.RUN_OVERDUE: lambda data: f"is overdue{_because(data)}",
    events.RETRY_CREATED: lambda data: f"created as a retry{_by(data) or _because(data)}",
    events.RETRIES_EXHAUSTED: lambda data: f"failed permanently{_because(data)}",
    events.JOB_CONTINUED: lambda data: "continues after a wait",
    events.SIGNAL_SENT: lambda data: f"got the signal {data.get('signal') or ''}{_by({'by': data.get('sent_by')})}",
    events.QUESTION_ASKED: lambda data: "asked a question and waits for the answer",
    events.QUESTION_ANSWERED: lambda data: f"its question was answered{_by(data)}",
    events.GROUP_FINISHED: lambda data: f"finished: {str(data.get('status') or '').lower()}",
    events.LEASE_EXPIRED: lambda data: "lost its worker: the lease expired",
    events.STALE_RESULT: lambda data: f"a late result was refused{_because(data)}",
    events.ZOMBIE_FOUND: lambda data: "was found running without a worker",
    events.RECOVERY_ACTED: lambda data: f"recovered: {data.get('action') or 'done'}",
    events.LIMIT_CHANGED: lambda data: f"the limit {data.get('limit')} was changed{_by(data)}",
    events.LIMIT_THROTTLED: _throttled,
    events.QUEUE_PAUSED: lambda data: _paused(data, "paused"),
    events.QUEUE_RESUMED: lambda data: _paused(data, "resumed"),
    events.QUEUE_STARVED: lambda data: f"direct requests leave jobs no slot of the limit {data.get('limit')}",
    events.RESERVATION_REQUESTED: lambda data: f"direct request {data.get('type') or ''} was made",
    events.RESERVATION_GRANTED: lambda data: f"direct request {data.get('type') or ''} got its slot",
    events.RESERVATION_RELEASED: lambda data: f"direct request {data.get('type') or ''} ended",
    events.RESERVATION_EXPIRED: lambda data: f"direct request {data.get('type') or ''} expired while waiting",
    events.SCHEDULE_FIRED: lambda data: "fired",
    events.SCHEDULE_SKIPPED: lambda data: f"skipped {_due_times(data)}{_because(data)}",
    events.DUPLICATE_REFUSED: lambda data: "a due time came up again and was not fired a second time",
    events.SCHEDULE_MISSED: lambda data: f"missed {_due_times(data)}{_because(data)}",
    events.SCHEDULE_CHANGED: _changed,
    events.SCHEDULE_WARNED: lambda data: f"warning: {data.get('warning') or ''}",
    events.PLAN_DECIDED: lambda data: str(data.get("sentence") or "planned"),
    events.TEMPLATE_ARCHIVED: lambda data: f"template {data.get('template_name') or ''} was archived",
    events.CLOCK_JUMPED: lambda data: f"the clock of {data.get('host') or 'a machine'} jumped by {_seconds(data)}",
    events.WEBHOOK_FAILED: lambda data: f"webhook not delivered{_because(data)}",
    events.WEBHOOK_DISABLED: lambda data: f"a webhook was disabled{_because(data)}",
    events.KEY_CREATED: lambda data: f"the {data.get('scope')} key {data.get('key_name')} was created{_by(data)}",
    events.KEY_REVOKED: lambda data: f"the key {data.get('key_name')} was revoked{_by(data)}",
    events.WORKER_STARTED: lambda data: f"{data.get('kind') or 'worker'} started on {data.get('host') or 'a machine'}",
    events.WORKER_STOPPED: lambda data: f"worker stopped{_because(data)}",
    events.SHUTDOWN_BEGUN: lambda data: f"shutdown began{_because(data)}",
    events.SHUTDOWN_ENDED: lambda data: "shutdown ended",
    events.SETTINGS_IN_FORCE: lambda data: "settings loaded",
    events.STORE_PRUNED: lambda data: "old records were deleted",
}


def _due_times(data: Data) -> str:
    count = data.get("count") or 1
    return "a run" if count == 1 else f"{count:,} runs"


def _seconds(data: Data) -> str:
    amount = data.get("amount_s")
    return span(amount) if isinstance(amount, int | float) else "some time"


def phrase(event: Data) -> str:
    """The event in words, without its subject; an event that this version does not know is named."""
    make = _PHRASES.get(event["name"])
    return make(event["data"]) if make is not None else str(event["name"])


def _is_failure(event: Data) -> bool:
    return bool(event["name"] == events.RUN_ENDED and event["data"].get("status") == "FAILED")


def _error(error: str | None) -> str:
    line = headline(error or "")
    return f": {line[:LONGEST_ERROR]}" if line else ""


def sentences(tx: Transaction, logged: Sequence[dict[str, Any]], own_job_id: str | None = None) -> list[dict[str, Any]]:
    """Events with `phrase` and the names of what they are about; on its own page a job is not named."""
    titles = job_titles(tx, (event["job_id"] for event in logged))
    errors = run_errors(tx, [event["job_id"] for event in logged if _is_failure(event)])
    schedules = schedule_names(tx, (event["schedule_id"] for event in logged))
    groups = group_names(tx, (event["group_id"] for event in logged))
    return [
        {
            **event,
            "phrase": phrase(event) + (_error(errors.get(event["job_id"])) if _is_failure(event) else ""),
            "job_title": None if is_own else titles.get(event["job_id"]),
            "schedule_name": None
            if is_own
            else schedules.get(event["schedule_id"]) or event["data"].get("schedule_name"),
            "group_name": None if is_own else groups.get(event["group_id"]),
            "kind": "failed"
            if event["name"] in PROBLEMS or event["data"].get("status") == "FAILED"
            else "completed"
            if event["data"].get("status") == "COMPLETED"
            else "queued",
        }
        for event in logged
        for is_own in [own_job_id is not None and event["job_id"] == own_job_id]
    ]
