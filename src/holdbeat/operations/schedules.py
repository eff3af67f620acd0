"""Operations that change schedules and endpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdbeat.domain.address import check_url
from holdbeat.domain.bounds import check_line
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import SHELL
from holdbeat.domain.schedule import Schedule
from holdbeat.domain.views import job_json, occurrence_json
from holdbeat.operations import checks
from holdbeat.operations.kinds import Kind
from holdbeat.operations.operation import OperationContext, writes
from holdbeat.store.firing import manual_fire
from holdbeat.store.queue.templates import find_template
from holdbeat.store.schedules import schedules
from holdbeat.store.tracing import current_traceparent
from holdbeat.store.transaction import Transaction

MOST_CHOSEN = 10_000


# --- create, edit, delete -------------------------------------------------------------------------------------


@writes
def create_schedule(tx: Transaction, context: OperationContext, kind: Kind, request: Mapping[str, Any]) -> Any:
    """Create a schedule."""
    _check_target(tx, context, kind, request)
    _guard_shell(tx, context, request)
    return kind.json(schedules.create_schedule(tx, request, endpoint=kind.is_endpoint))


@writes
def update_schedule(
    tx: Transaction,
    context: OperationContext,
    kind: Kind,
    reference: str,
    changes: Mapping[str, Any],
    *,
    version: int | None = None,
) -> Any:
    """Change a schedule; its next run is planned again at once. Its existing jobs do not change."""
    present = _guard_present(tx, context, kind, reference)
    _check_target(tx, context, kind, {"type": present.type, "template_id": present.template_id, **changes})
    _guard_shell(tx, context, changes)
    changed = schedules.patch_schedule(tx, reference, changes, version=version, endpoint=kind.is_endpoint)
    return kind.json(changed)


@writes
def delete_schedule(
    tx: Transaction, context: OperationContext, kind: Kind, reference: str, *, version: int | None = None
) -> None:
    """Delete a schedule; its jobs and the record of its due times stay."""
    _guard_present(tx, context, kind, reference)
    schedules.delete_schedule(tx, reference, version=version, endpoint=kind.is_endpoint)


def _check_target(tx: Transaction, context: OperationContext, kind: Kind, fields: Mapping[str, Any]) -> None:
    """Refuses an address that this deployment would never call (SEC-04); names are judged when they are called."""
    url = fields.get("url")
    if kind.is_endpoint and isinstance(url, str):
        check_url(url, context.outbound_policy(tx))
    is_http = _is_http(tx, kind, fields)
    checks.check_call(context, "http" if is_http else None, fields.get("params"), fields.get("webhook_url"))


def _is_http(tx: Transaction, kind: Kind, fields: Mapping[str, Any]) -> bool:
    """Whether the params of these fields are those of a call."""
    reference = fields.get("template", fields.get("template_id"))
    if isinstance(reference, str):
        template = find_template(tx, reference)
        return template is not None and template.type == "http"
    return fields.get("type") == "http" and not kind.is_endpoint


def _guard_present(tx: Transaction, context: OperationContext, kind: Kind, reference: str) -> Schedule:
    present = schedules.get_schedule(tx, checks.check_reference(reference), endpoint=kind.is_endpoint, locked=True)
    _guard_shell(tx, context, {"type": present.type, "template": present.template_id})
    return present


def _guard_shell(tx: Transaction, context: OperationContext, fields: Mapping[str, Any]) -> None:
    """Refuses a shell schedule of somebody without an admin key (SEC-05)."""
    if context.is_admin:
        return
    is_shell = fields.get("type") == SHELL
    for name in ("template", "template_id"):
        reference = fields.get(name)
        template = find_template(tx, reference) if isinstance(reference, str) else None
        is_shell = is_shell or (template is not None and template.type == SHELL)
    if is_shell:
        checks.check_admin(context, "Making or changing a shell schedule")


# --- enable, pause, hint, trigger ---------------------------------------------------------------------------


def _changed(
    tx: Transaction, kind: Kind, reference: str, change: Callable[..., Schedule], *args: Any, **options: Any
) -> Any:
    """Changes a schedule by its name or id, and answers with what it has become."""
    reference = checks.check_reference(reference)
    return kind.json(change(tx, reference, *args, endpoint=kind.is_endpoint, **options))


@writes
def enable_schedule(tx: Transaction, context: OperationContext, kind: Kind, reference: str) -> Any:
    """Enable a schedule: it fires again from now on."""
    return _changed(tx, kind, reference, schedules.enable_schedule)


@writes
def disable_schedule(tx: Transaction, context: OperationContext, kind: Kind, reference: str) -> Any:
    """Disable a schedule: it fires no more until it is enabled."""
    return _changed(tx, kind, reference, schedules.disable_schedule)


@writes
def pause_schedule(
    tx: Transaction,
    context: OperationContext,
    kind: Kind,
    reference: str,
    *,
    until: str | None = None,
    reason: str | None = None,
) -> Any:
    """Pause a schedule until an instant, or until it is resumed."""
    return _changed(tx, kind, reference, schedules.pause_schedule, until, reason)


@writes
def resume_schedule(tx: Transaction, context: OperationContext, kind: Kind, reference: str) -> Any:
    """End the pause of a schedule."""
    return _changed(tx, kind, reference, schedules.resume_schedule)


@writes
def pause_schedules(
    tx: Transaction,
    context: OperationContext,
    kind: Kind,
    ids: Sequence[str] | None = None,
    *,
    label: str | None = None,
    until: str | None = None,
    reason: str | None = None,
) -> Any:
    """Pause many schedules: those named, or all that are enabled and have a label."""
    chosen, label = _chosen(ids, label)
    if chosen is None and label is None:
        raise Invalid("Say which schedules to pause: ids, or a label.", code="nothing_chosen", field="label")
    options: dict[str, Any] = {"label": label, "until": until, "reason": reason, "endpoint": kind.is_endpoint}
    return _page(kind, schedules.pause_schedules(tx, chosen, **options))


@writes
def resume_schedules(
    tx: Transaction,
    context: OperationContext,
    kind: Kind,
    ids: Sequence[str] | None = None,
    *,
    label: str | None = None,
) -> Any:
    """End the pauses of many schedules, spread over a minute: those named, all with a label, or all."""
    chosen, label = _chosen(ids, label)
    return _page(kind, schedules.resume_schedules(tx, chosen, label=label, endpoint=kind.is_endpoint))


def _chosen(ids: Sequence[str] | None, label: str | None) -> tuple[list[str] | None, str | None]:
    if ids is not None and label is not None:
        raise Invalid("Say ids or a label, not both.", code="invalid_request", field="label")
    chosen = None if ids is None else checks.check_texts(ids, "ids", "ids", MOST_CHOSEN)
    return chosen, None if label is None else check_line(label, "label", 500)


def _page(kind: Kind, changed: Sequence[Schedule]) -> Any:
    return {"items": [kind.json(schedule) for schedule in changed], "next_cursor": None}


@writes
def reset_schedule_failures(tx: Transaction, context: OperationContext, kind: Kind, reference: str) -> Any:
    """Reset the failure count of an adaptive schedule, which ends its backoff."""
    return _changed(tx, kind, reference, schedules.reset_failure_count)


@writes
def hint_schedule(
    tx: Transaction,
    context: OperationContext,
    kind: Kind,
    reference: str,
    *,
    interval_s: float | None = None,
    next_run_at: str | None = None,
    ttl_s: float | None = None,
    reason: str | None = None,
) -> Any:
    """Ask an adaptive schedule for another interval, for a run at a time, or both."""
    hints = {"interval_s": interval_s, "next_run_at": next_run_at, "ttl_s": ttl_s, "reason": reason}
    return _changed(tx, kind, reference, schedules.set_hints, **hints)


@writes
def clear_schedule_hints(tx: Transaction, context: OperationContext, kind: Kind, reference: str) -> Any:
    """Drop the hints of an adaptive schedule."""
    return _changed(tx, kind, reference, schedules.clear_hints)


@writes
def trigger_schedule(tx: Transaction, context: OperationContext, kind: Kind, reference: str) -> Any:
    """Fire a schedule now, also while it is paused or disabled."""
    reference = checks.check_reference(reference)
    occurrence, job = manual_fire.trigger_schedule(
        tx, reference, endpoint=kind.is_endpoint, trace=context.traceparent or current_traceparent()
    )
    return {**job_json(job), "occurrence": occurrence_json(occurrence)}
