"""What can be read about Schedules: lists, previews, and why one runs when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdbeat.domain.bounds import instant
from holdbeat.domain.clock import iso
from holdbeat.domain.cron import Dst, Fire
from holdbeat.domain.errors import Invalid
from holdbeat.domain.occurrence import Occurrence
from holdbeat.domain.params import check_text
from holdbeat.domain.schedule import INDEFINITE, Schedule
from holdbeat.domain.timetable import fire_at, preview, preview_of
from holdbeat.store.transaction import Transaction
from holdbeat.store.verbs.in_flight import InFlight, in_flight
from holdbeat.store.verbs.job_filter import Conditions, refuse_unknown
from holdbeat.store.verbs.occurrences import list_occurrences
from holdbeat.store.verbs.pages import Cursors, Page, check_limit
from holdbeat.store.verbs.schedule_rows import SCHEDULE, schedule_of
from holdbeat.store.verbs.schedules import get_schedule

SCHEDULE_FILTERS = ("enabled", "adaptive", "paused", "type", "template_id")
PREVIEWED = 10


def list_schedules(
    tx: Transaction,
    filters: Mapping[str, Any] | None = None,
    *,
    endpoint: bool | None = False,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[Schedule]:
    """Schedules, newest first; `endpoint` chooses between them and Endpoints, None lists both."""
    given = refuse_unknown(filters or {}, SCHEDULE_FILTERS)
    found = Conditions()
    if endpoint is not None:
        found.add(f"endpoint IS {'NOT ' if endpoint else ''}NULL")
    for name in ("enabled", "adaptive"):
        if name in given:
            found.add(f"{name} = :{name}", **{name: _flag(given[name], name)})
    if "paused" in given:
        is_paused = "paused_until IS NOT NULL AND paused_until > :now"
        found.add(is_paused if _flag(given["paused"], "paused") else f"NOT ({is_paused})", now=tx.now)
    for name in ("type", "template_id"):
        if name in given:
            found.add(f"{name} = :{name}", **{name: check_text(given[name], name, 500)})
    count = check_limit(limit)
    cursors = Cursors("schedules", {**given, "endpoint": endpoint})
    last = cursors.read(cursor, str)
    if last is not None:
        found.add("id < :last_id", last_id=last[0])
    rows = tx.rows(
        f"SELECT {SCHEDULE} FROM schedules WHERE {found.where} ORDER BY id DESC LIMIT :count",
        count=count + 1,
        **found.params,
    )
    items = [schedule_of(tx, row) for row in rows[:count]]
    return Page(items, cursors.write(items[-1].id) if len(rows) > count else None)


def _flag(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise Invalid(f"{field} must be true or false.", code="invalid_filter", field=field)
    return value


def occurrences_of(
    tx: Transaction,
    reference: str,
    filters: Mapping[str, Any] | None = None,
    *,
    endpoint: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[Occurrence]:
    """The due times of a schedule and what became of them, latest first."""
    schedule = get_schedule(tx, reference, endpoint=endpoint)
    return list_occurrences(tx, schedule.id, filters, limit=limit, cursor=cursor)


def preview_schedule(
    tx: Transaction, reference: str, n: int = PREVIEWED, *, endpoint: bool | None = None
) -> list[Fire]:
    """The next due times by the timetable alone; hints, clamps and backoff of an adaptive one come on top."""
    return preview(get_schedule(tx, reference, endpoint=endpoint), tx.now, n)


def preview_timetable(tx: Transaction, given: Mapping[str, Any]) -> list[Fire]:
    """The same for a timetable that nobody saved yet: cron or interval_s, timezone, dst, after, n."""
    known = ("cron", "interval_s", "timezone", "dst", "after", "n")
    for name in given:
        if name not in known:
            raise Invalid(
                f"{str(name)[:100]} is not a field of a preview; its fields are {', '.join(known)}.",
                code="unknown_field",
                field=str(name)[:100],
            )
    dst = given.get("dst") or Dst.VIXIE
    if dst not in tuple(Dst):
        raise Invalid(f"dst must be one of {', '.join(Dst)}.", code="unknown_choice", field="dst")
    after = given.get("after")
    probe = {"cron": given.get("cron"), "interval_s": given.get("interval_s")}
    return preview_of(
        **probe,
        timezone=given.get("timezone") or "UTC",
        dst=Dst(dst),
        after=tx.now if after is None else instant(after, "after"),
        n=given.get("n") or PREVIEWED,
    )


# --- why ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ScheduleExplanation:
    """Why a schedule runs when it runs, or why it does not."""

    schedule: Schedule
    state: str
    """`disabled`, `paused`, `in_flight`, `planned` or `over`."""
    summary: str
    fires_at: datetime | None
    """The next due time with its jitter."""
    in_flight: list[str]
    """Ids of unfinished jobs."""
    latest: list[Occurrence]


def explain_schedule(tx: Transaction, reference: str, *, endpoint: bool | None = None) -> ScheduleExplanation:
    """The facts behind the next run: the plan, what is in flight, and the latest due times."""
    schedule = get_schedule(tx, reference, endpoint=endpoint)
    flight = in_flight(tx, [schedule.id])[schedule.id]
    state, summary = _state(schedule, flight, tx.now)
    latest = list_occurrences(tx, schedule.id, limit=5).items
    return ScheduleExplanation(schedule, state, summary, fire_at(schedule), flight.unfinished, latest)


def _state(schedule: Schedule, flight: InFlight, now: datetime) -> tuple[str, str]:
    if not schedule.enabled:
        return "disabled", "It is disabled: nothing fires until it is enabled."
    if schedule.adaptive and flight:
        return "in_flight", "A job of it is unfinished: the next run is planned when that ends."
    if schedule.is_paused(now):
        until = "somebody resumes it" if schedule.paused_until == INDEFINITE else iso(schedule.paused_until or now)
        reason = f" ({schedule.pause_reason})" if schedule.pause_reason else ""
        return "paused", f"It is paused until {until}{reason}."
    if schedule.next_run_at is None:
        sentence = (schedule.last_decision or {}).get("sentence")
        return "over", sentence or "Its timetable has no due time after now."
    if schedule.adaptive and schedule.last_decision is not None:
        return "planned", schedule.last_decision["sentence"]
    source = f"its cron expression {schedule.cron}" if schedule.cron else f"its interval of {schedule.interval_s:g} s"
    return "planned", f"Next run at {iso(schedule.next_run_at)} by {source}."
