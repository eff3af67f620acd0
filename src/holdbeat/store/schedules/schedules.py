"""Schedules: made, changed, paused and hinted by people and programs.

Guards GOV-08 and TIME-06: every change is made under the schedule's lock, plans again in the same transaction, and
wakes the triggers. So a change at the very instant of firing comes before it or after it, never in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.errors import Invalid, NotFound, refuse_stale
from holdbeat.domain.occurrence import Occurrence
from holdbeat.domain.redaction import kept_headers, kept_secrets, refuse_marks
from holdbeat.domain.schedule import Schedule, job_for
from holdbeat.domain.schedule_edit import TOLD_ON_CHANGE, created, edited
from holdbeat.domain.schedule_steps import (
    PlannedSchedule,
    cleared_hints,
    paused,
    replanned,
    reset_failures,
    resumed,
    with_hint,
)
from holdbeat.domain.submission import Submission
from holdbeat.schemas.field_bounds import LONGEST_NAME
from holdbeat.store.queue.submission import Preparation
from holdbeat.store.queue.templates import named_template
from holdbeat.store.queue.unique_names import check_name, lock_name, refuse_taken_name
from holdbeat.store.reads.find_schedules import add_label
from holdbeat.store.reads.ids import row_by_name
from holdbeat.store.reads.pagination import Conditions
from holdbeat.store.reads.schedules import SCHEDULES
from holdbeat.store.schedules.after_run import record_plan
from holdbeat.store.schedules.occurrences import in_flight, insert_occurrences, taken
from holdbeat.store.schedules.schedule_rows import delete_row, insert_schedules, save_schedule
from holdbeat.store.transaction import Transaction

BULK_SPREAD_S = 60.0
"""Over this time many schedules that are resumed together are spread (TIME-05)."""

Step = Callable[..., PlannedSchedule]
"""A change: a function of the schedule, `now`, and `in_flight`, which says whether a job of it is unfinished."""


# --- making and finding -----------------------------------------------------------------------------------


def create_schedule(tx: Transaction, fields: Mapping[str, Any], *, endpoint: bool = False) -> Schedule:
    """Stores a schedule with its first plan. Its type must be known, its params must fit, its name must be free."""
    schedule = created(tx.new_id(), _read(tx, fields), tx.now, endpoint=endpoint)
    check_name("schedule", schedule.name)
    is_http = _check_work(tx, schedule) == "http"
    if schedule.endpoint is not None:
        kept_headers(schedule.endpoint.headers, {})
    elif is_http and schedule.params is not None:
        refuse_marks(schedule.params)
    refuse_taken_name(tx, "schedule", schedule.name, schedule.id)
    schedule = replanned(schedule, tx.now).schedule
    insert_schedules(tx, [schedule])
    tx.record(events.SCHEDULE_CHANGED, schedule_id=schedule.id, change="created", schedule_name=schedule.name)
    record_plan(tx, schedule)
    return schedule


def find_schedule(tx: Transaction, reference: str) -> Schedule | None:
    """A schedule by its id or its name."""
    row = row_by_name(tx, "schedule", SCHEDULES.columns, reference)
    return None if row is None else SCHEDULES.read(tx, row)


def get_schedule(tx: Transaction, reference: str, *, endpoint: bool | None = None, locked: bool = False) -> Schedule:
    """A schedule by its name, its id or a part of the id, or NotFound. `endpoint` wants only that kind."""
    row = row_by_name(tx, "schedule", SCHEDULES.columns, reference, locked=locked, by_part=True)
    schedule = None if row is None else SCHEDULES.read(tx, row)
    if schedule is None or (endpoint is not None and (schedule.endpoint is not None) is not endpoint):
        kind = "endpoint" if endpoint else "schedule"
        raise NotFound(f"There is no {kind} {reference[:LONGEST_NAME]!r}.")
    return schedule


# --- changing ---------------------------------------------------------------------------------------------


def patch_schedule(
    tx: Transaction,
    reference: str,
    changes: Mapping[str, Any],
    *,
    version: int | None = None,
    endpoint: bool | None = None,
) -> Schedule:
    """Changes fields, unless `version` is not the present one (Stale). A header that is the redaction mark is kept."""
    fields = _read(tx, changes)

    def step(schedule: Schedule, *, now: datetime, in_flight: bool) -> PlannedSchedule:
        changed = edited(schedule, kept_secrets(schedule, fields))
        if changed.name != schedule.name:
            check_name("schedule", changed.name)
            refuse_taken_name(tx, "schedule", changed.name, changed.id)
        if changed.enabled or changed.template_id != schedule.template_id:
            _check_work(tx, changed)
        return replanned(changed, now, previous=schedule, in_flight=in_flight)

    return _take_step(tx, reference, "changed", step, version=version, endpoint=endpoint, fields=sorted(fields))


def save_named_schedule(tx: Transaction, name: str, fields: Mapping[str, Any]) -> Schedule:
    """Makes or changes the schedule of that name, for programs that declare theirs; no difference changes nothing."""
    # Processes that declare the same at once wait for each other here, before they look.
    lock_name(tx, "schedule", name)
    present = find_schedule(tx, name)
    if present is None:
        return create_schedule(tx, {**fields, "name": name})
    if edited(present, _read(tx, fields)) == present:
        return present
    return patch_schedule(tx, present.id, fields)


def delete_schedule(
    tx: Transaction, reference: str, *, version: int | None = None, endpoint: bool | None = None
) -> None:
    """Removes the schedule. Its jobs stay as they are (INV-005), and so does the record of its due times."""
    schedule = get_schedule(tx, reference, endpoint=endpoint, locked=True)
    refuse_stale(f"Schedule {schedule.name}", schedule.version, version, schedule_id=schedule.id)
    delete_row(tx, schedule)
    tx.record(events.SCHEDULE_CHANGED, schedule_id=schedule.id, change="deleted", schedule_name=schedule.name)


def enable_schedule(tx: Transaction, reference: str, *, endpoint: bool | None = None) -> Schedule:
    """Lets it fire again, from now on."""
    return _switch(tx, reference, True, endpoint)


def disable_schedule(tx: Transaction, reference: str, *, endpoint: bool | None = None) -> Schedule:
    """Lets it fire no more; what is unfinished goes on."""
    return _switch(tx, reference, False, endpoint)


def _switch(tx: Transaction, reference: str, enabled: bool, endpoint: bool | None) -> Schedule:
    def step(schedule: Schedule, *, now: datetime, in_flight: bool) -> PlannedSchedule:
        changed = edited(schedule, {"enabled": enabled})
        if enabled:
            _check_work(tx, changed)
        return replanned(changed, now, previous=schedule, in_flight=in_flight)

    return _take_step(tx, reference, "enabled" if enabled else "disabled", step, endpoint=endpoint)


# --- pauses, hints, failure counts ------------------------------------------------------------------------


def pause_schedule(
    tx: Transaction,
    reference: str,
    until: datetime | str | None = None,
    reason: str | None = None,
    *,
    endpoint: bool | None = None,
) -> Schedule:
    """Pauses it until an instant, or until it is resumed."""
    step = partial(paused, until=until, reason=reason)
    return _take_step(tx, reference, "paused", step, endpoint=endpoint, reason=reason)


def resume_schedule(
    tx: Transaction, reference: str, *, spread_s: float = 0.0, endpoint: bool | None = None
) -> Schedule:
    """Ends a pause at once."""
    return _take_step(tx, reference, "resumed", partial(resumed, spread_s=spread_s), endpoint=endpoint)


def pause_schedules(
    tx: Transaction,
    references: Sequence[str] | None = None,
    *,
    label: str | None = None,
    until: datetime | str | None = None,
    reason: str | None = None,
    endpoint: bool | None = None,
) -> list[Schedule]:
    """Pauses many until an instant, or until they are resumed: those named, or the enabled ones with this label."""
    if references is None:
        references = _ids_where(tx, "enabled AND (paused_until IS NULL OR paused_until <= :now)", label, endpoint)
    return [pause_schedule(tx, reference, until, reason, endpoint=endpoint) for reference in references]


def resume_schedules(
    tx: Transaction,
    references: Sequence[str] | None = None,
    *,
    label: str | None = None,
    endpoint: bool | None = None,
) -> list[Schedule]:
    """Ends the pauses of those named, of all with a label, or of all; adaptive ones over a minute (TIME-05)."""
    if references is None:
        references = _ids_where(tx, "paused_until > :now", label, endpoint)
    return [resume_schedule(tx, reference, spread_s=BULK_SPREAD_S, endpoint=endpoint) for reference in references]


def _ids_where(tx: Transaction, condition: str, label: str | None, endpoint: bool | None) -> list[str]:
    conditions = Conditions()
    conditions.add(condition, now=tx.now)
    if endpoint is not None:
        conditions.add(f"endpoint IS {'NOT ' if endpoint else ''}NULL")
    source = "schedules" if label is None else add_label(conditions, label, endpoint=endpoint)
    return tx.column(f"SELECT id FROM {source} WHERE {conditions.where} ORDER BY id", **conditions.params)


def set_hints(
    tx: Transaction,
    reference: str,
    *,
    interval_s: float | None = None,
    next_run_at: datetime | str | None = None,
    ttl_s: float | None = None,
    reason: str | None = None,
    endpoint: bool | None = None,
) -> Schedule:
    """Asks an adaptive schedule for another pace, for a run at a time, or both; each has its own expiry."""
    step = partial(with_hint, interval_s=interval_s, next_run_at=next_run_at, ttl_s=ttl_s, reason=reason)
    return _take_step(tx, reference, "hinted", step, endpoint=endpoint, reason=reason)


def clear_hints(tx: Transaction, reference: str, *, endpoint: bool | None = None) -> Schedule:
    return _take_step(tx, reference, "hints cleared", cleared_hints, endpoint=endpoint)


def reset_failure_count(tx: Transaction, reference: str, *, endpoint: bool | None = None) -> Schedule:
    """Ends the backoff."""
    return _take_step(tx, reference, "failures reset", reset_failures, endpoint=endpoint)


def _take_step(
    tx: Transaction,
    reference: str,
    change: str,
    step: Step,
    *,
    version: int | None = None,
    endpoint: bool | None = None,
    **data: Any,
) -> Schedule:
    """Takes one step under the schedule's lock, and writes the schedule, its plan and the due times it decided."""
    before = get_schedule(tx, reference, endpoint=endpoint, locked=True)
    refuse_stale(f"Schedule {before.name}", before.version, version, schedule_id=before.id)
    is_in_flight = before.adaptive or change in ("changed", "enabled")
    flight = in_flight(tx, [before.id])[before.id] if is_in_flight else None
    planned = step(before, now=tx.now, in_flight=bool(flight))
    after = replace(planned.schedule, version=before.version + 1)
    verdicts = [(before.id, verdict.due_at) for verdict in planned.verdicts]
    standing = taken(tx, verdicts)
    insert_occurrences(
        tx,
        [
            Occurrence(tx.new_id(), before.id, v.due_at, v.status, tx.now, None, v.reason, v.count, v.late_s)
            for v in planned.verdicts
            if (before.id, v.due_at) not in standing
        ],
    )
    save_schedule(tx, after, before)
    values = events.differences(before, after, TOLD_ON_CHANGE) if change == "changed" else None
    tx.record(events.SCHEDULE_CHANGED, schedule_id=after.id, change=change, values=values or None, **data)
    for warning in after.warnings:
        if warning not in before.warnings:
            tx.record(events.SCHEDULE_WARNED, schedule_id=after.id, schedule_name=after.name, warning=warning)
    record_plan(tx, after)
    return after


# --- checks -----------------------------------------------------------------------------------------------


def _read(tx: Transaction, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request, with a template by name or id as its id."""
    read = dict(fields)
    reference = read.pop("template", None)
    if "template" in fields and reference is None:
        read.setdefault("template_id", None)
    elif reference is not None:
        template = named_template(tx, reference)
        if read.get("template_id") not in (None, template.id):
            raise Invalid("template and template_id differ: give one.", code="ambiguous_type", field="template_id")
        read["template_id"] = template.id
    return read


def _check_work(tx: Transaction, schedule: Schedule) -> str:
    """Refuses what could not be submitted; the type is kept by its proper name, which is given back."""
    request = Preparation(tx).prepare(Submission.for_schedule(job_for(schedule, tx.now)))
    if schedule.type is not None:
        schedule.type = request.type
    return request.type
