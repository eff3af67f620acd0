"""The one JSON form of each thing, for the API, webhooks and the command line alike (DEC-006).

Secrets never pass through here: what must not be shown is replaced by the redaction mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from holdbeat.domain.clock import iso
from holdbeat.domain.group import JobGroup
from holdbeat.domain.job import Job
from holdbeat.domain.reservation import Reservation
from holdbeat.domain.run import JobRun

REDACTED = "[redacted]"
SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key", "x-auth-token"}
)


def _time(instant: datetime | None) -> str | None:
    return None if instant is None else iso(instant)


def redacted_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Headers with the values of secret ones replaced by the mark."""
    return {name: REDACTED if name.lower() in SECRET_HEADERS else value for name, value in headers.items()}


def redacted_params(type_: str, params: dict[str, Any]) -> dict[str, Any]:
    """Params as they may be shown; those of `http` jobs can carry credentials in their headers."""
    headers = params.get("headers")
    if type_ != "http" or not isinstance(headers, dict):
        return params
    return {**params, "headers": redacted_headers(headers)}


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
        "artifacts": run.artifacts,
        "result": run.result,
    }


def job_json(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "type": job.type,
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
        "retried_by": job.retried_by,
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
        "jobs": [job_json(job) for job in jobs],
    }


def reservation_json(reservation: Reservation) -> dict[str, Any]:
    return {
        "id": reservation.id,
        "type": reservation.type,
        "resource": reservation.resource,
        "status": reservation.status,
        "requested_at": _time(reservation.requested_at),
        "granted_at": _time(reservation.granted_at),
        "finished_at": _time(reservation.finished_at),
        "expires_at": _time(reservation.expires_at),
        "owner": reservation.owner,
        "outcome": reservation.outcome,
        "error": reservation.error,
    }
