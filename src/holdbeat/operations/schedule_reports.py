"""Operations that read schedules and endpoints: lists, due times, explanations, previews, health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdbeat.domain.bounds import check_line
from holdbeat.domain.views import occurrence_json, preview_json
from holdbeat.operations import checks
from holdbeat.operations.kinds import Kind
from holdbeat.operations.operation import OperationContext, reads
from holdbeat.store.schedules import schedule_reports
from holdbeat.store.transaction import Transaction


@reads
def list_schedules(
    tx: Transaction,
    context: OperationContext,
    kind: Kind,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    **filters: Any,
) -> Any:
    """List schedules, the newest first unless `order` says otherwise."""
    page = schedule_reports.list_schedules(tx, filters, endpoint=kind.is_endpoint, limit=limit, cursor=cursor)
    return checks.page_json(page, kind.json)


@reads
def get_schedule(tx: Transaction, context: OperationContext, kind: Kind, reference: str) -> Any:
    """Read a schedule by its id or its name."""
    from holdbeat.store.schedules import schedules

    return kind.json(schedules.get_schedule(tx, checks.check_reference(reference), endpoint=kind.is_endpoint))


@reads
def list_schedule_occurrences(
    tx: Transaction,
    context: OperationContext,
    kind: Kind,
    reference: str,
    *,
    status: str | Sequence[str] | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Any:
    """List the due times of a schedule and their outcomes, the latest first."""
    page = schedule_reports.occurrences_of(
        tx,
        checks.check_reference(reference),
        {"status": checks.several(status)},
        endpoint=kind.is_endpoint,
        limit=limit,
        cursor=cursor,
    )
    return checks.page_json(page, occurrence_json)


@reads
def explain_schedule(tx: Transaction, context: OperationContext, kind: Kind, reference: str) -> Any:
    """Explain why a schedule runs when it runs, or why it does not."""
    from holdbeat.observe.explain_schedule import explain_schedule as explain

    return explain(tx, checks.check_reference(reference), endpoint=kind.is_endpoint)


@reads
def preview_schedule(
    tx: Transaction, context: OperationContext, kind: Kind, reference: str, *, n: int | None = None
) -> Any:
    """Show the next due times at which a schedule fires, from its plan on, gaps and folds marked."""
    reference = checks.check_reference(reference)
    count = schedule_reports.PREVIEWED if n is None else n
    return preview_json(schedule_reports.preview_schedule(tx, reference, count, endpoint=kind.is_endpoint))


@reads
def preview_schedule_timetable(
    tx: Transaction, context: OperationContext, kind: Kind, timetable: Mapping[str, Any]
) -> Any:
    """Show the next due times of a cron expression or an interval before it is saved, gaps and folds marked."""
    fields = checks.checked_fields(timetable, ("cron", "interval_s", "timezone", "dst", "after", "n"))
    if fields.get("cron") is not None:
        check_line(fields["cron"], "cron", 256)
    for name in ("timezone", "dst"):
        if fields.get(name) is not None:
            check_line(fields[name], name)
    return preview_json(schedule_reports.preview_timetable(tx, fields))


@reads
def get_schedule_health(tx: Transaction, context: OperationContext, kind: Kind, reference: str) -> Any:
    """Read the successes and failures of a schedule over the last 1, 4 and 24 hours."""
    from holdbeat.store.schedules import endpoints

    return endpoints.endpoint_health(tx, checks.check_reference(reference))
