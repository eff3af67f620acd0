"""What the pages about time read: schedules and endpoints, their plans, their past."""

from __future__ import annotations

from typing import Any

from holdbeat.domain.bounds import check_duration_s
from holdbeat.domain.errors import Invalid
from holdbeat.domain.schedule import LONGEST_INTERVAL_S, SHORTEST_INTERVAL_S
from holdbeat.domain.views import endpoint_json, occurrence_json, schedule_json
from holdbeat.observe.explain_schedule import explain_schedule
from holdbeat.store.queue.templates import find_template
from holdbeat.store.schedules.endpoints import endpoint_health
from holdbeat.store.schedules.occurrences import list_occurrences
from holdbeat.store.schedules.schedule_reports import (
    list_schedules,
    preview_schedule,
    preview_timetable,
)
from holdbeat.store.schedules.schedules import get_schedule
from holdbeat.store.transaction import Transaction
from holdbeat.web.request import Ask

PREVIEWED = 10
INTERVALS = (SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S)
_FLAGS = {"yes": True, "no": False}


def read_schedules(tx: Transaction, ask: Ask) -> dict[str, Any]:
    page = list_schedules(tx, _filters(ask), endpoint=False, limit=50, cursor=ask.text("cursor"))
    return {
        "schedules": [schedule_json(each) for each in page.items],
        "next_cursor": page.next_cursor,
        **trial(tx, ask),
    }


def _filters(ask: Ask) -> dict[str, Any]:
    return {
        name: _FLAGS[value]
        for name in ("enabled", "paused")
        if (value := ask.text(name)) is not None and value in _FLAGS
    }


def trial(tx: Transaction, ask: Ask) -> dict[str, Any]:
    """A timetable that somebody tries out before saving it (TIME-08)."""
    cron, interval = ask.text("cron"), ask.text("interval_s")
    if cron is None and interval is None:
        return {"trial": None, "trial_refusal": None}
    try:
        interval_s = None if interval is None else check_duration_s(_number(interval), "interval_s", *INTERVALS)
        given = {"cron": cron, "interval_s": interval_s, "timezone": ask.text("timezone"), "dst": ask.text("dst")}
        given["n"] = PREVIEWED
        return {"trial": preview_timetable(tx, given), "trial_refusal": None}
    except Invalid as error:
        return {"trial": None, "trial_refusal": error.detail}


def _number(text: str) -> float | str:
    """A number, or the text itself for the check that says what is wrong with it."""
    try:
        return float(text)
    except ValueError:
        return text


def read_endpoints(tx: Transaction, ask: Ask) -> dict[str, Any]:
    page = list_schedules(tx, _filters(ask), endpoint=True, limit=50, cursor=ask.text("cursor"))
    return {
        "endpoints": [
            {**endpoint_json(each), "health": endpoint_health(tx, each.id)["windows"]["1h"]} for each in page.items
        ],
        "next_cursor": page.next_cursor,
    }


def read_schedule(tx: Transaction, ask: Ask) -> dict[str, Any]:
    return _read_one(tx, ask, endpoint=None)


def read_endpoint(tx: Transaction, ask: Ask) -> dict[str, Any]:
    return _read_one(tx, ask, endpoint=True)


def _read_one(tx: Transaction, ask: Ask, *, endpoint: bool | None) -> dict[str, Any]:
    """One of either kind: who follows an event to its schedule need not know which it is."""
    schedule = get_schedule(tx, ask.path["id"], endpoint=endpoint)
    is_endpoint = schedule.endpoint is not None
    page = list_occurrences(tx, schedule.id, limit=20, cursor=ask.text("cursor"))
    return {
        "title": schedule.name,
        "menu": "endpoints" if is_endpoint else "schedules",
        "schedule": endpoint_json(schedule) if is_endpoint else schedule_json(schedule),
        "is_endpoint": is_endpoint,
        "api": f"/api/{'endpoints' if is_endpoint else 'schedules'}/{schedule.id}",
        "explanation": explain_schedule(tx, schedule.id),
        "is_paused": schedule.is_paused(tx.now),
        "preview": preview_schedule(tx, schedule.id, PREVIEWED, endpoint=is_endpoint)
        if schedule.enabled and schedule.trouble is None
        else [],
        "occurrences": [occurrence_json(each) for each in page.items],
        "next_cursor": page.next_cursor,
        "health": endpoint_health(tx, schedule.id) if is_endpoint else None,
        "template": find_template(tx, schedule.template_id) if schedule.template_id else None,
    }
