"""The one JSON form of each thing, for the API, webhooks and the command line alike (DEC-006).

Secrets never pass through here: what must not be shown is replaced by the redaction mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from holdbeat.domain.clock import iso
from holdbeat.domain.redaction import REDACTED, redacted_headers, redacted_params

if TYPE_CHECKING:
    # Names of types alone: whoever shows a job need not load all there is about cron.
    from holdbeat.domain.cron import Fire
    from holdbeat.domain.dependencies import Edge
    from holdbeat.domain.events import Event
    from holdbeat.domain.group import JobGroup
    from holdbeat.domain.job import Job
    from holdbeat.domain.occurrence import Occurrence
    from holdbeat.domain.question import Question
    from holdbeat.domain.reservation import Reservation
    from holdbeat.domain.run import JobRun
    from holdbeat.domain.schedule import Schedule
    from holdbeat.domain.template import JobTemplate
    from holdbeat.domain.webhook import Delivery, Webhook
    from holdbeat.domain.worker import Worker

    class BulkOutcome(Protocol):
        """How a change of many jobs went."""

        matched: int
        changed: int
        ids: list[str]


def _time(instant: datetime | None) -> str | None:
    return None if instant is None else iso(instant)


def run_json(run: JobRun, type_: str = "") -> dict[str, Any]:
    return {
        "id": run.id,
        "job_id": run.job_id,
        "template_id": run.template_id,
        "params_snapshot": redacted_params(type_, run.params_snapshot),
        "worker_id": run.worker_id,
        "fence": run.fence,
        "started_at": _time(run.started_at),
        "finished_at": _time(run.finished_at),
        "status": run.status,
        "exit_code": run.exit_code,
        "error": run.error,
        "error_kind": run.error_kind,
        "artifacts": {name: about for name, about in run.artifacts.items() if name != "result"},
        "result": run.result,
        "result_bytes": run.omitted_result_bytes,
        "result_url": f"/api/job-runs/{run.id}/artifacts/result" if run.omitted_result_bytes is not None else None,
    }


def job_json(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "type": job.type,
        "title": job.title or job.type,
        "params": redacted_params(job.type, job.params),
        "status": job.status,
        "priority": job.priority,
        "position": job.position,
        "resource": job.resource,
        "template_id": job.template_id,
        "schedule_id": job.schedule_id,
        "scheduled_for": _time(job.scheduled_for),
        "group_id": job.group_id,
        "sequence": job.sequence,
        "retry_of": job.retry_of,
        "retry_kind": job.retry_kind,
        "retried_by": None if job.continued_by else job.retried_by,
        "continued_by": job.continued_by,
        "root_id": job.chain_id,
        "waits_for": job.waits_for,
        "after": [_edge_json(edge) for edge in job.after],
        "on_upstream": job.on_upstream,
        "parent_id": job.parent_id,
        "is_detached": job.is_detached,
        "unique_key": job.unique_key,
        "unique_while": job.unique_while,
        "expires_at": _time(job.expires_at),
        "permanently_failed": job.permanently_failed,
        "retry_policy": job.retry_policy.as_dict(),
        "timeout_s": job.timeout_s,
        "cancel_grace_s": job.cancel_grace_s,
        "not_before": _time(job.not_before),
        "idempotency_key": job.idempotency_key,
        "webhook_url": job.webhook_url,
        "labels": job.labels,
        "created_at": _time(job.created_at),
        "started_at": _time(job.started_at),
        "finished_at": _time(job.finished_at),
        "cancel_requested_at": _time(job.cancel_requested_at),
        "cancel_reason": job.cancel_reason,
        "worker_id": job.worker_id,
        "heartbeat_at": _time(job.heartbeat_at),
        "lease_expires_at": _time(job.lease_expires_at),
        "run": run_json(job.run, job.type) if job.run else None,
        "attempt": job.attempt,
        "manual_retries": list(job.manual_retries),
        "progress": job.progress,
        "open_steps": [{"name": step.name, "started_at": _time(step.started_at)} for step in job.open_steps],
        "partition": job.partition or None,
        "weight": job.weight,
        "affinity": job.affinity or None,
        "preempt": job.preempts,
        "preemptible": job.preemptible,
    }


def _edge_json(edge: Edge) -> dict[str, Any]:
    return {
        "job_id": None if edge.is_group else edge.upstream_id,
        "group_id": edge.upstream_id if edge.is_group else None,
        "as": edge.name,
        "met_at": _time(edge.met_at),
        "outcome": edge.outcome,
    }


def question_json(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "job_id": question.root_id,
        "title": question.title,
        "question": question.question,
        "choices": question.choices,
        "schema": question.schema,
        "asked_at": _time(question.asked_at),
        "answer": question.answer,
        "answered_by": question.answered_by,
        "answered_at": _time(question.answered_at),
    }


def group_json(group: JobGroup, jobs: list[Job]) -> dict[str, Any]:
    return {
        "id": group.id,
        "name": group.name,
        "mode": group.mode,
        "on_failure": group.on_failure,
        "status": group.status,
        "created_at": _time(group.created_at),
        "started_at": _time(group.started_at),
        "finished_at": _time(group.finished_at),
        "then_job_id": group.then_job_id,
        "jobs": [job_json(job) for job in jobs],
    }


def bulk_json(outcome: BulkOutcome) -> dict[str, Any]:
    return {"matched": outcome.matched, "changed": outcome.changed, "ids": outcome.ids}


def reservation_json(reservation: Reservation) -> dict[str, Any]:
    return {
        "id": reservation.id,
        "kind": reservation.kind,
        "type": reservation.type,
        "title": reservation.title or reservation.type,
        "client": reservation.client,
        "resource": reservation.resource,
        "status": reservation.status,
        "requested_at": _time(reservation.requested_at),
        "granted_at": _time(reservation.granted_at),
        "finished_at": _time(reservation.finished_at),
        "expires_at": _time(reservation.expires_at),
        "owner": reservation.owner,
        "worker_id": reservation.worker_id,
        "fence": reservation.fence,
        "slot": reservation.number,
        "outcome": reservation.outcome,
        "error": reservation.error,
    }


def slot_json(reservation: Reservation) -> dict[str, Any]:
    """A borrowed slot as its holder needs it."""
    return {
        "id": reservation.id,
        "resource": reservation.resource,
        "granted_at": _time(reservation.granted_at),
        "expires_at": _time(reservation.expires_at),
        "slot": reservation.number,
        "fence": reservation.fence,
    }


def template_json(template: JobTemplate) -> dict[str, Any]:
    return {
        "id": template.id,
        "name": template.name,
        "type": template.type,
        "default_params": redacted_params(template.type, template.default_params),
        "priority": template.priority,
        "resource": template.resource,
        "retry_policy": template.retry_policy,
        "timeout_s": template.timeout_s,
        "cancel_grace_s": template.cancel_grace_s,
        "webhook_url": template.webhook_url,
        "labels": template.labels,
        "description": template.description,
        "archived_at": _time(template.archived_at),
        "version": template.version,
        "created_at": _time(template.created_at),
    }


def webhook_json(webhook: Webhook, *, with_secret: bool = False) -> dict[str, Any]:
    """A subscription; its secret is shown only to who has just made it."""
    return {
        "id": webhook.id,
        "url": webhook.url,
        "events": list(webhook.events),
        "secret": webhook.secret if with_secret else REDACTED,
        "enabled": webhook.enabled,
        "disabled_reason": webhook.disabled_reason,
        "rotated_at": _time(webhook.rotated_at),
        "version": webhook.version,
        "created_at": _time(webhook.created_at),
    }


def delivery_json(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "webhook_id": delivery.webhook_id,
        "job_id": delivery.job_id,
        "group_id": delivery.group_id,
        "event": delivery.event,
        "url": delivery.url,
        "payload": delivery.payload,
        "status": delivery.status,
        "attempts": delivery.attempts,
        "next_attempt_at": _time(delivery.next_attempt_at),
        "waits_until": _time(delivery.waits_until),
        "waits_because": delivery.waits_because,
        "created_at": _time(delivery.created_at),
        "delivered_at": _time(delivery.delivered_at),
        "last_status_code": delivery.last_status_code,
        "last_error": delivery.last_error,
    }


def worker_json(worker: Worker) -> dict[str, Any]:
    return {
        "id": worker.id,
        "kind": worker.kind,
        "host": worker.host,
        "pid": worker.pid,
        "slots": worker.slots,
        "http_slots": worker.http_slots,
        "types": list(worker.types),
        "resources": None if worker.resources is None else list(worker.resources),
        "version": worker.version,
        "started_at": _time(worker.started_at),
        "heartbeat_at": _time(worker.heartbeat_at),
        "expires_at": _time(worker.expires_at),
        "stopping_at": _time(worker.stopping_at),
        "stopped_at": _time(worker.stopped_at),
        "memory_bytes": worker.memory_bytes,
        "cpu_share": worker.cpu_share,
    }


def event_json(event: Event) -> dict[str, Any]:
    return {
        "id": event.id,
        "name": event.name,
        "at": _time(event.at),
        "job_id": event.job_id,
        "run_id": event.run_id,
        "worker_id": event.worker_id,
        "group_id": event.group_id,
        "schedule_id": event.schedule_id,
        "data": event.data,
    }


def _timing_json(schedule: Schedule) -> dict[str, Any]:
    """What schedules and endpoints have in common: when they run, and why then."""
    from holdbeat.domain.schedule import INDEFINITE
    from holdbeat.domain.timetable import fires_at, next_run

    decision = schedule.last_decision
    return {
        "cron": schedule.cron,
        "interval_s": schedule.interval_s,
        "timezone": schedule.timezone,
        "dst": schedule.dst,
        "jitter_s": schedule.jitter_s,
        "start_at": _time(schedule.start_at),
        "end_at": _time(schedule.end_at),
        "catch_up": schedule.catch_up,
        "catch_up_limit": schedule.catch_up_limit,
        "misfire_grace_s": schedule.misfire_grace_s,
        "overlap": schedule.overlap,
        "adaptive": schedule.adaptive,
        "min_interval_s": schedule.min_interval_s,
        "max_interval_s": schedule.max_interval_s,
        "paused_until": _time(schedule.paused_until),
        "paused_indefinitely": schedule.paused_until == INDEFINITE,
        "pause_reason": schedule.pause_reason,
        "hint_interval_s": schedule.hint_interval_s,
        "hint_interval_expires_at": _time(schedule.hint_interval_expires_at),
        "hint_interval_reason": schedule.hint_interval_reason,
        "hint_next_run_at": _time(schedule.hint_next_run_at),
        "hint_next_run_expires_at": _time(schedule.hint_next_run_expires_at),
        "hint_next_run_reason": schedule.hint_next_run_reason,
        "failure_count": schedule.failure_count,
        "last_run_at": _time(schedule.last_run_at),
        "next_run_at": _time(next_run(schedule)),
        "fires_at": _time(fires_at(schedule)),
        "last_decision": {name: value for name, value in decision.items() if name != "memory"} if decision else None,
        "trouble": schedule.trouble,
        "warnings": schedule.warnings,
        "version": schedule.version,
        "created_at": _time(schedule.created_at),
    }


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    return {
        "id": schedule.id,
        "name": schedule.name,
        "enabled": schedule.enabled,
        "template_id": schedule.template_id,
        "type": schedule.type,
        # Whatever the type, or the template's: headers that look like secrets are not shown.
        "params": None if schedule.params is None else redacted_params("http", schedule.params),
        "priority": schedule.priority,
        "resource": schedule.resource,
        "retry_policy": schedule.retry_policy,
        "timeout_s": schedule.timeout_s,
        "cancel_grace_s": schedule.cancel_grace_s,
        "webhook_url": schedule.webhook_url,
        "labels": schedule.labels,
        **_timing_json(schedule),
    }


def endpoint_json(schedule: Schedule) -> dict[str, Any]:
    from holdbeat.domain.endpoint import HTTP_RESOURCE

    call = schedule.endpoint
    if call is None:
        raise ValueError("only a schedule with an HTTP call is an endpoint")
    return {
        "id": schedule.id,
        "name": schedule.name,
        "enabled": schedule.enabled,
        "url": call.url,
        "method": call.method,
        "headers": redacted_headers(call.headers),
        "body": call.body,
        "timeout_s": call.timeout_s,
        "max_execution_s": call.max_execution_s,
        "max_response_kb": call.max_response_kb,
        "resource": HTTP_RESOURCE,
        "priority": schedule.priority,
        "webhook_url": schedule.webhook_url,
        "labels": schedule.labels,
        **_timing_json(schedule),
    }


def preview_json(fires: Sequence[Fire]) -> dict[str, Any]:
    """Due times to come, and when the clocks of their zone change next."""
    from holdbeat.domain.timetable import clock_change

    change = clock_change(fires)
    clocks = {"at": iso(change[1]), "before": change[0].isoformat(), "after": change[1].isoformat()} if change else None
    return {
        "items": [{"at": iso(fire.at), "local": fire.local.isoformat(), "note": fire.note} for fire in fires],
        "clock_change": clocks,
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
