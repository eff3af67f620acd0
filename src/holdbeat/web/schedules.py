"""Reads for the pages about time: schedules and endpoints, their plans, their past."""

from __future__ import annotations

from typing import Any

from holdbeat.domain.cron_syntax import NICKNAMES
from holdbeat.domain.errors import Invalid
from holdbeat.domain.views import endpoint_json, occurrence_json, schedule_json
from holdbeat.observe.explain_schedule import explain_schedule
from holdbeat.store.queue.templates import find_template
from holdbeat.store.reads.find_schedules import ORDERS, STATES, PastRun, find_schedules, past_runs, runs_of
from holdbeat.store.schedules.endpoints import endpoint_health
from holdbeat.store.schedules.occurrences import list_occurrences
from holdbeat.store.schedules.schedule_reports import preview_schedule, preview_timetable
from holdbeat.store.schedules.schedules import get_schedule
from holdbeat.store.transaction import Transaction
from holdbeat.web import charts
from holdbeat.web.request import PageRequest

PREVIEWED = 10
SHOWN = 50
ORDER_WORDS = {"failing": "Failing first", "name": "Name", "next": "Next run", "last": "Last run", "newest": "Newest"}


def read_schedules(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    return {**read_list(tx, request, endpoint=False), **trial(tx, request)}


def read_list(tx: Transaction, request: PageRequest, *, endpoint: bool) -> dict[str, Any]:
    """A page of either kind: found by text and state, what fails first unless another order is asked for."""
    state, order = request.text("state"), request.text("sort")
    state = state if state in STATES else None
    order = order if order in ORDERS else "failing"
    number = request.text("page")
    page = min(int(number), 100_000) if number and number.isascii() and number.isdigit() and len(number) < 7 else 1
    page = max(1, page)
    schedules = find_schedules(
        tx,
        endpoint=endpoint,
        text=request.text("q"),
        state=state,
        order=order,
        limit=SHOWN,
        offset=SHOWN * (page - 1),
    )
    runs = past_runs(tx, [schedule.id for schedule in schedules.schedules])
    return {
        "schedules": [
            {
                **(endpoint_json(schedule) if endpoint else schedule_json(schedule)),
                "past": runs[schedule.id],
                "mean_s": _mean_s(runs[schedule.id]),
                "in_words": in_words(schedule.cron) if schedule.cron else None,
            }
            for schedule in schedules.schedules
        ],
        "total": schedules.total,
        "by_state": schedules.by_state,
        "states": STATES,
        "state": state,
        "order": order,
        "orders": ORDER_WORDS,
        "text": request.text("q"),
        "page": page,
        "pages": max(1, -(-schedules.total // SHOWN)),
    }


def _mean_s(runs: list[PastRun]) -> float | None:
    took = [(run.finished_at - run.started_at).total_seconds() for run in runs if run.finished_at and run.started_at]
    return sum(took) / len(took) if took else None


def trial(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    """A timetable that is tried out before it is saved (TIME-08)."""
    cron, interval = request.text("cron"), request.text("interval_s")
    if cron is None and interval is None:
        return {"trial": None, "trial_refusal": None}
    try:
        interval_s = None if interval is None else _number(interval)
        timetable = {
            "cron": cron,
            "interval_s": interval_s,
            "timezone": request.text("timezone"),
            "dst": request.text("dst"),
        }
        timetable["n"] = PREVIEWED
        return {"trial": preview_timetable(tx, timetable), "trial_refusal": None}
    except Invalid as error:
        return {"trial": None, "trial_refusal": error.detail}


def _number(text: str) -> float | str:
    """A number, or the text itself for the check that says what is wrong with it."""
    try:
        return float(text)
    except ValueError:
        return text


def read_one(tx: Transaction, request: PageRequest, *, endpoint: bool | None = None) -> dict[str, Any]:
    """One of either kind: a link from an event to its schedule need not know which it is."""
    schedule = get_schedule(tx, request.path["id"], endpoint=endpoint)
    is_endpoint = schedule.endpoint is not None
    page = list_occurrences(tx, schedule.id, limit=20, cursor=request.text("cursor"))
    past = past_runs(tx, [schedule.id], 60)[schedule.id]
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
        "occurrences": [occurrence_json(item) for item in page.items],
        "results": runs_of(tx, [item.job_id for item in page.items if item.job_id]),
        "next_cursor": page.next_cursor,
        "health": endpoint_health(tx, schedule.id) if is_endpoint else None,
        "past": past[-20:],
        "mean_s": _mean_s(past),
        "times": charts.run_times(past, request.zone),
        "last_error": next((run for run in reversed(past) if run.status == "FAILED" and run.error), None),
        "in_words": in_words(schedule.cron) if schedule.cron else None,
        "template": find_template(tx, schedule.template_id) if schedule.template_id else None,
    }


_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}


def in_words(cron: str) -> str | None:
    """`every 15 minutes`, `daily at 03:00`, `Mondays at 06:30`; None where the expression itself is clearer."""
    fields = NICKNAMES.get(cron.strip().lower(), cron).split()
    if len(fields) != 5 or fields[3] != "*":
        return None
    minute, hour, day, _, weekday = fields
    if hour == "*" and day == "*" and weekday == "*":
        return _within_an_hour(minute)
    if not (minute.isdigit() and hour.isdigit()):
        return None
    at = f"at {int(hour):02d}:{int(minute):02d}"
    if day == "*" and weekday == "*":
        return f"daily {at}"
    if day == "*":
        days = _days(weekday)
        return f"{days} {at}" if days else None
    return f"day {day} of the month {at}" if day.isdigit() and weekday == "*" else None


def _within_an_hour(minute: str) -> str | None:
    if minute == "*":
        return "every minute"
    if minute.startswith("*/") and minute[2:].isdigit() and 60 % int(minute[2:] or 1) == 0:
        return "every minute" if int(minute[2:]) == 1 else f"every {minute[2:]} minutes"
    return f"hourly at :{int(minute):02d}" if minute.isdigit() else None


def _days(weekday: str) -> str | None:
    if weekday.lower() in ("1-5", "mon-fri"):
        return "weekdays"
    if weekday.lower() in ("0,6", "6,0", "6,7", "sat,sun"):
        return "weekends"
    number = _SHORT.get(weekday.lower(), int(weekday) if weekday.isdigit() and int(weekday) < 8 else None)
    return None if number is None else f"{_DAYS[number]}s"
