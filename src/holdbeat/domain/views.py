"""The one JSON form of each thing, for the API, webhooks and the command line alike (DEC-006).

A form has the fields that its schema documents, in that order. Those of jobs, runs and events are written out, because
they are made for every request and every message.

Secrets never pass through here: what must not be shown is replaced by the redaction mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from holdbeat.domain.clock import iso
from holdbeat.domain.json_text import json_text
from holdbeat.domain.redaction import REDACTED, redacted_headers, redacted_params
from holdbeat.schemas import durable, jobs, schedules, system

if TYPE_CHECKING:
    # Imported for type checkers only: showing a job does not need the modules of cron.
    from holdbeat.domain.cron import Fire
    from holdbeat.domain.dependencies import Edge
    from holdbeat.domain.events import Event
    from holdbeat.domain.group import JobGroup
    from holdbeat.domain.job import Job, JobTemplate
    from holdbeat.domain.occurrence import Occurrence
    from holdbeat.domain.reservation import Reservation
    from holdbeat.domain.run import JobRun
    from holdbeat.domain.schedule import Schedule
    from holdbeat.domain.waits import Question
    from holdbeat.domain.webhook import Delivery, Webhook


def _time(instant: datetime | None) -> str | None:
    return None if instant is None else iso(instant)


def form(thing: object, schema: Any, **own: Any) -> dict[str, Any]:
    """The fields of a schema, from the attributes of a thing; `own` are those that its attributes do not say."""
    return {name: own[name] if name in own else _plain(getattr(thing, name)) for name in schema.__annotations__}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    return list(value) if isinstance(value, tuple) else value


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
        "waits": job.current_waits,
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


_HOLES = {"id": '"%s"', "title": "%s", "params": "%s", "position": "%d", "root_id": '"%s"', "created_at": '"%s"'}
"""Where the JSON of new jobs that differ in their params alone differs."""


class UniformJobText:
    """The JSON of new jobs that differ from a first one in their params alone: the rest of it is written once."""

    __slots__ = ("_form", "_type")

    def __init__(self, first: Job) -> None:
        self._type = first.type
        members = [
            f"{json_text(name)}:{_HOLES.get(name) or json_text(value).replace('%', '%%')}"
            for name, value in job_json(first).items()
        ]
        self._form = f"{{{','.join(members)}}}"

    def write(self, id: str, params: dict[str, Any], title: str, position: int, created_at: str) -> str:
        """`job_json` of such a job, as text."""
        params_json = json_text(redacted_params(self._type, params)) if params else "{}"
        return self._form % (id, encode_basestring(title or self._type), params_json, position, id, created_at)


def _edge_json(edge: Edge) -> dict[str, Any]:
    return {
        "job_id": None if edge.is_group else edge.upstream_id,
        "group_id": edge.upstream_id if edge.is_group else None,
        "as": edge.name,
        "met_at": _time(edge.met_at),
        "outcome": edge.outcome,
    }


def question_json(question: Question) -> dict[str, Any]:
    return form(question, durable.Question, job_id=question.root_id)


def group_json(group: JobGroup, members: list[Job]) -> dict[str, Any]:
    return form(group, jobs.JobGroup, jobs=[job_json(job) for job in members])


def reservation_json(reservation: Reservation, estimated_start: datetime | None = None) -> dict[str, Any]:
    return form(
        reservation,
        system.Reservation,
        title=reservation.title or reservation.type,
        slot=reservation.number,
        estimated_start=_time(estimated_start),
    )


def slot_json(reservation: Reservation) -> dict[str, Any]:
    """A borrowed slot as its holder needs it."""
    return form(reservation, system.BorrowedSlot, slot=reservation.number)


def template_json(template: JobTemplate) -> dict[str, Any]:
    params = redacted_params(template.type, template.default_params)
    return form(template, jobs.JobTemplate, default_params=params)


def webhook_json(webhook: Webhook, *, with_secret: bool = False) -> dict[str, Any]:
    """A subscription; its secret is shown only when it is created."""
    return form(webhook, system.Webhook, secret=webhook.secret if with_secret else REDACTED)


def delivery_json(delivery: Delivery) -> dict[str, Any]:
    return form(delivery, system.Delivery)


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


def _timing(schedule: Schedule) -> dict[str, Any]:
    """The fields of schedules and endpoints about when they run that are computed."""
    from holdbeat.domain.schedule import INDEFINITE
    from holdbeat.domain.timetable import fires_at, next_run

    decision = schedule.last_decision
    return {
        "paused_indefinitely": schedule.paused_until == INDEFINITE,
        "next_run_at": _time(next_run(schedule)),
        "fires_at": _time(fires_at(schedule)),
        "last_decision": {name: value for name, value in decision.items() if name != "memory"} if decision else None,
    }


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    # Headers that look like secrets are not shown, whatever the type of the schedule or of its template.
    params = None if schedule.params is None else redacted_params("http", schedule.params)
    return form(schedule, schedules.Schedule, params=params, **_timing(schedule))


def endpoint_json(schedule: Schedule) -> dict[str, Any]:
    from holdbeat.domain.lease import HTTP_RESOURCE

    if schedule.endpoint is None:
        raise ValueError("only a schedule with an HTTP call is an endpoint")
    call = asdict(schedule.endpoint)
    call["headers"] = redacted_headers(schedule.endpoint.headers)
    return form(schedule, schedules.Endpoint, resource=HTTP_RESOURCE, **call, **_timing(schedule))


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
    return form(occurrence, schedules.Occurrence)
