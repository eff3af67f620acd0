"""Reports about Schedules: lists, previews, and why one runs when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdbeat.domain.bounds import check_choice, check_duration_s, check_flag, check_instant
from holdbeat.domain.clock import iso
from holdbeat.domain.cron import Dst, Fire
from holdbeat.domain.errors import Invalid
from holdbeat.domain.occurrence import Occurrence
from holdbeat.domain.params import check_text
from holdbeat.domain.schedule import Schedule, instant_in
from holdbeat.domain.schedule_preview import preview_of_saved
from holdbeat.domain.timetable import fires_at, preview_of
from holdbeat.schemas.field_bounds import LONGEST_INTERVAL_S, SHORTEST_INTERVAL_S
from holdbeat.store.reads.find_schedules import add_label, add_text
from holdbeat.store.reads.job_filter import refuse_unknown
from holdbeat.store.reads.pagination import Conditions, Cursors, Page, check_limit, read_page
from holdbeat.store.reads.schedules import SCHEDULES
from holdbeat.store.schedules.occurrences import InFlight, in_flight, list_occurrences
from holdbeat.store.transaction import Transaction

SCHEDULE_FILTERS = ("enabled", "adaptive", "paused", "type", "template_id", "order", "q", "failing", "label")
ORDERS = ("newest", "next_run")
PREVIEWED = 10


def list_schedules(
    tx: Transaction,
    filters: Mapping[str, Any] | None = None,
    *,
    endpoint: bool | None = False,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[Schedule]:
    """Schedules, Endpoints or both (None), newest first; by `next_run` only those that the trigger waits for."""
    chosen = refuse_unknown(filters or {}, SCHEDULE_FILTERS)
    order = chosen.get("order", "newest")
    if order not in ORDERS:
        raise Invalid(f"order must be one of {', '.join(ORDERS)}.", code="invalid_filter", field="order")
    conditions = Conditions()
    if endpoint is not None:
        conditions.add(f"endpoint IS {'NOT ' if endpoint else ''}NULL")
    for name in ("enabled", "adaptive", "paused", "failing"):
        if name in chosen:
            check_flag(chosen[name], name, code="invalid_filter")
    for name in ("enabled", "adaptive"):
        if name in chosen:
            conditions.add(f"{name} = :{name}", **{name: chosen[name]})
    if "paused" in chosen:
        is_paused = "paused_until IS NOT NULL AND paused_until > :now"
        conditions.add(is_paused if chosen["paused"] else f"NOT ({is_paused})", now=tx.now)
    if "failing" in chosen:
        is_failing = "(failure_count > 0 OR trouble IS NOT NULL)"
        conditions.add(is_failing if chosen["failing"] else f"NOT {is_failing}")
    source, key = "schedules", "id"
    if "q" in chosen:
        source += f" {add_text(conditions, check_text(chosen['q'], 'q', 200), endpoint=endpoint)}"
        # A rare text is found faster in any other order than in that of the ids.
        key = "id || ''"
    if "label" in chosen:
        source = add_label(conditions, check_text(chosen["label"], "label", 500), endpoint=endpoint)
        key = "schedule_id"
    for name in ("type", "template_id"):
        if name in chosen:
            conditions.add(f"{name} = :{name}", **{name: check_text(chosen[name], name, 500)})
    cursors = Cursors("schedules", {**chosen, "endpoint": endpoint})
    if order == "next_run":
        source = source if "label" in chosen else "schedules INDEXED BY schedules_wake"
        return _next_first(tx, source, conditions, cursors, cursor, check_limit(limit))
    return read_page(tx, cursors, SCHEDULES.columns, source, SCHEDULES.read, conditions, limit, cursor, key=key)


def _next_first(
    tx: Transaction, source: str, conditions: Conditions, cursors: Cursors, cursor: str | None, count: int
) -> Page[Schedule]:
    """By the moment at which the trigger looks at each."""
    conditions.add("wake_at IS NOT NULL AND next_run_at IS NOT NULL AND trouble IS NULL")
    conditions.add("(paused_until IS NULL OR paused_until <= next_run_at)")
    last = cursors.read(cursor, str, str)
    if last is not None:
        conditions.add(
            "(wake_at, id) > (:last_at, :last_id)", last_at=check_instant(last[0], "cursor"), last_id=last[1]
        )
    rows = tx.rows(
        f"SELECT {SCHEDULES.columns}, wake_at FROM {source} WHERE {conditions.where} ORDER BY wake_at, id LIMIT :count",
        count=count + 1,
        **conditions.params,
    )
    page_rows = rows[:count]
    items = [SCHEDULES.read(tx, row) for row in page_rows]
    return Page(
        items, cursors.write(iso(tx.instant(page_rows[-1][-1])), page_rows[-1][0]) if len(rows) > count else None
    )


def _schedule(tx: Transaction, reference: str, endpoint: bool | None) -> Schedule:
    # Imported here, because listing schedules does not need the module that changes them.
    from holdbeat.store.schedules.schedules import get_schedule

    return get_schedule(tx, reference, endpoint=endpoint)


def occurrences_of(
    tx: Transaction,
    reference: str,
    filters: Mapping[str, Any] | None = None,
    *,
    endpoint: bool | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[Occurrence]:
    """The due times of a schedule and their verdicts, latest first."""
    schedule = _schedule(tx, reference, endpoint)
    return list_occurrences(tx, schedule.id, filters, limit=limit, cursor=cursor)


def preview_schedule(
    tx: Transaction, reference: str, n: int = PREVIEWED, *, endpoint: bool | None = None
) -> list[Fire]:
    """The next due times that fire, from its plan on; what lies inside a pause is left out."""
    schedule = _schedule(tx, reference, endpoint)
    is_in_flight = schedule.adaptive and bool(in_flight(tx, [schedule.id])[schedule.id])
    return preview_of_saved(schedule, tx.now, n, in_flight=is_in_flight)


def preview_timetable(tx: Transaction, fields: Mapping[str, Any]) -> list[Fire]:
    """Previews a timetable that nobody saved yet: cron or interval_s, timezone, dst, after, n."""
    timetable = {name: value for name, value in fields.items() if value is not None}
    interval_s = timetable.get("interval_s")
    timezone = timetable.get("timezone", "UTC")
    return preview_of(
        cron=timetable.get("cron"),
        interval_s=None
        if interval_s is None
        else check_duration_s(interval_s, "interval_s", SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S),
        timezone=timezone,
        dst=check_choice(Dst, timetable.get("dst", Dst.VIXIE), "dst"),
        after=instant_in(timezone, timetable["after"], "after") if "after" in timetable else tx.now,
        n=timetable.get("n", PREVIEWED),
    )


# --- why ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ScheduleFacts:
    schedule: Schedule
    state: str
    """`disabled`, `broken`, `paused`, `in_flight`, `planned` or `over`."""
    fires_at: datetime | None
    """The next due time with its jitter."""
    in_flight: list[str]
    """Ids of unfinished jobs."""
    latest: list[Occurrence]


def schedule_facts(tx: Transaction, reference: str, *, endpoint: bool | None = None) -> ScheduleFacts:
    """The facts behind the next run: the plan, what is in flight, and the latest due times."""
    schedule = _schedule(tx, reference, endpoint)
    flight = in_flight(tx, [schedule.id])[schedule.id]
    latest = list_occurrences(tx, schedule.id, limit=5).items
    return ScheduleFacts(schedule, _state(schedule, flight, tx.now), fires_at(schedule), flight.unfinished, latest)


def _state(schedule: Schedule, flight: InFlight, now: datetime) -> str:
    if not schedule.enabled:
        return "disabled"
    if schedule.trouble is not None:
        return "broken"
    if schedule.is_paused(now):
        return "paused"
    if schedule.adaptive and flight:
        return "in_flight"
    return "over" if schedule.next_run_at is None else "planned"
