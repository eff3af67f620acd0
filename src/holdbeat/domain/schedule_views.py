"""The one JSON form of Schedules, Endpoints and Occurrences, beside that of all other things in `views`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdbeat.domain.clock import iso
from holdbeat.domain.endpoint import HTTP_RESOURCE
from holdbeat.domain.occurrence import Occurrence
from holdbeat.domain.schedule import Schedule
from holdbeat.domain.views import redacted_headers, redacted_params


def _time(instant: datetime | None) -> str | None:
    return None if instant is None else iso(instant)


def schedule_json(schedule: Schedule, work_type: str | None = None) -> dict[str, Any]:
    """A Schedule. `work_type` is the type of its template, which decides what of the params may be shown."""
    params = schedule.params
    return {
        "id": schedule.id,
        "name": schedule.name,
        "enabled": schedule.enabled,
        "template_id": schedule.template_id,
        "type": schedule.type,
        "params": None if params is None else redacted_params(work_type or schedule.type or "http", params),
        "priority": schedule.priority,
        "resource": schedule.resource,
        "retry_policy": schedule.retry_policy.as_dict() if schedule.retry_policy else None,
        "timeout_s": schedule.timeout_s,
        "webhook_url": schedule.webhook_url,
        "labels": schedule.labels,
        "cron": schedule.cron,
        "interval_s": schedule.interval_s,
        "timezone": schedule.timezone,
        "dst": schedule.dst,
        "jitter_s": schedule.jitter_s,
        "start_at": _time(schedule.start_at),
        "end_at": _time(schedule.end_at),
        "catch_up": schedule.catch_up,
        "catch_up_limit": schedule.catch_up_limit,
        "overlap": schedule.overlap,
        "adaptive": schedule.adaptive,
        "min_interval_s": schedule.min_interval_s,
        "max_interval_s": schedule.max_interval_s,
        "paused_until": _time(schedule.paused_until),
        "pause_reason": schedule.pause_reason,
        "hint_interval_s": schedule.hint_interval_s,
        "hint_interval_expires_at": _time(schedule.hint_interval_expires_at),
        "hint_interval_reason": schedule.hint_interval_reason,
        "hint_next_run_at": _time(schedule.hint_next_run_at),
        "hint_next_run_expires_at": _time(schedule.hint_next_run_expires_at),
        "hint_next_run_reason": schedule.hint_next_run_reason,
        "failure_count": schedule.failure_count,
        "last_run_at": _time(schedule.last_run_at),
        "next_run_at": _time(schedule.next_run_at),
        "last_decision": schedule.last_decision,
        "version": schedule.version,
        "created_at": _time(schedule.created_at),
    }


def endpoint_json(schedule: Schedule) -> dict[str, Any]:
    """An Endpoint: the Schedule with the call that it makes in place of a type and params."""
    call = schedule.endpoint
    assert call is not None
    whole = schedule_json(schedule)
    for name in ("template_id", "type", "params", "retry_policy"):
        del whole[name]
    return {
        **whole,
        "resource": HTTP_RESOURCE,
        "url": call.url,
        "method": call.method,
        "headers": redacted_headers(call.headers),
        "body": call.body,
        "timeout_s": call.timeout_s,
        "max_execution_s": call.max_execution_s,
        "max_response_kb": call.max_response_kb,
    }


def occurrence_json(occurrence: Occurrence) -> dict[str, Any]:
    return {
        "id": occurrence.id,
        "schedule_id": occurrence.schedule_id,
        "due_at": _time(occurrence.due_at),
        "status": occurrence.status,
        "job_id": occurrence.job_id,
        "reason": occurrence.reason,
        "count": occurrence.count,
        "recorded_at": _time(occurrence.recorded_at),
        "late_s": occurrence.late_s,
    }
