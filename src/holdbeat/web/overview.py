"""Reads for the overview and the timeline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from holdbeat.domain.attention import AttentionItem
from holdbeat.domain.timetable import fires_at
from holdbeat.domain.views import question_json, run_json
from holdbeat.domain.waits import counted_waits
from holdbeat.observe.wording import listed
from holdbeat.operations.system import item_json
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.attention import read_attention
from holdbeat.store.queue.job_types import some_type_names
from holdbeat.store.queue.pauses import list_pauses
from holdbeat.store.reads.jobs import has_jobs, load_jobs
from holdbeat.store.reads.lease_holders import leases_held, slot_holders
from holdbeat.store.reads.list_jobs import list_runs
from holdbeat.store.reads.needs_attention import next_schedules
from holdbeat.store.reads.questions import count_open_questions, open_questions
from holdbeat.store.reads.stats import resource_stats
from holdbeat.store.reads.timeline import MINUTE, Minute, Span, minutes_since, spans_since
from holdbeat.store.reads.waits import wait_counts
from holdbeat.store.reads.workers import live_workers
from holdbeat.store.transaction import Transaction
from holdbeat.web import charts
from holdbeat.web.jobs import direct_line
from holdbeat.web.request import PageRequest

LINE_SHOWN = 3
QUESTIONS_SHOWN = 10
SETTLED = timedelta(minutes=2)
"""A minute that is over for so long does not change any more."""
ZOOMS = {
    "2m": ("2 min", 120),
    "15m": ("15 min", 900),
    "1h": ("1 hour", 3600),
    "6h": ("6 hours", 21_600),
    "24h": ("24 hours", 86_400),
}

_known_minutes: WeakKeyDictionary[PersistenceAdapter, dict[datetime, Minute]] = WeakKeyDictionary()
"""Minutes that were counted once: of a busy hour only the last two are counted again for the next look."""


def last_hour(tx: Transaction, store: PersistenceAdapter) -> list[Minute]:
    """The minutes of the last hour, the present one last."""
    now_minute = tx.now.replace(second=0, microsecond=0)
    first = now_minute - 59 * MINUTE
    kept_minutes = _known_minutes.get(store, {})
    fresh_from = first
    while fresh_from in kept_minutes:
        fresh_from += MINUTE
    fresh = {minute.at: minute for minute in minutes_since(tx, fresh_from)}
    instants = [first + MINUTE * number for number in range(60)]
    minutes = [kept_minutes[at] if at < fresh_from else fresh.get(at) or Minute(at) for at in instants]
    _known_minutes[store] = {minute.at: minute for minute in minutes if minute.at + MINUTE + SETTLED < tx.now}
    return minutes


def read_questions(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    page = open_questions(tx, cursor=request.text("cursor"))
    return {"questions": [question_json(question) for question in page.items], "next_cursor": page.next_cursor}


def read_overview(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    minutes = last_hour(tx, request.context.store)
    minutes_with_data = charts.from_first_data(minutes)
    pauses = list_pauses(tx)
    paused = {pause.resource for pause in pauses}
    busy = slot_holders(tx)
    line, in_line = direct_line(tx, LINE_SHOWN)
    resources = [
        {
            "name": name,
            **figures,
            "paused": None in paused or name in paused,
            "slot_holders": [holder for holder in busy if holder.resource == name],
            "line": [entry for entry in line if entry["resource"] == name],
            "free": max(0, min(24, (figures["slots"] or 0)) - figures["used"]),
        }
        for name, figures in resource_stats(tx).items()
    ]
    ended = {outcome: sum(minute.ended.get(outcome, 0) for minute in minutes) for outcome in charts.OUTCOMES}
    oldest = [resource["oldest_wait_s"] for resource in resources if resource["oldest_wait_s"] is not None]
    workers = live_workers(tx)
    questions = open_questions(tx, limit=QUESTIONS_SHOWN)
    leases = leases_held(tx)
    used_by = {worker.id: sum(n for (holder, _), n in leases.items() if holder == worker.id) for worker in workers}
    for resource in resources:
        resource["running"] = sum(n for (_, name), n in leases.items() if name == resource["name"])
    failures = [
        {**run_json(item.run, item.type), "type": item.type}
        for item in list_runs(tx, {"status": "FAILED"}, limit=6).items
    ]
    titles = {job.id: job.title for job in load_jobs(tx, [failure["job_id"] for failure in failures])}
    for failure in failures:
        failure["title"] = titles.get(failure["job_id"]) or failure["type"]
    return {
        "line": line,
        "questions": [question_json(question) for question in questions.items],
        "questions_open": count_open_questions(tx) if questions.next_cursor else len(questions.items),
        "in_line": in_line,
        "resources": [resource for resource in resources if not _is_idle(resource)],
        "idle": [resource for resource in resources if _is_idle(resource)],
        "running": sum(resource["used"] for resource in resources),
        "waiting": sum(resource["waiting"] for resource in resources),
        "held": counted_waits(wait_counts(tx)),
        "oldest_wait_s": max(oldest, default=None),
        "ended": ended,
        "throughput": charts.throughput(minutes_with_data, request.zone),
        "waits": charts.waits(minutes_with_data, request.zone),
        "failures": failures,
        "workers": [{"worker": worker, "used": used_by[worker.id]} for worker in workers],
        "next": [(schedule, fires_at(schedule)) for schedule in next_schedules(tx) if not schedule.is_paused(tx.now)],
        "pauses": pauses,
        "attention": _attention(tx),
        "minutes_shown": len(minutes_with_data),
        "is_new": not has_jobs(tx),
        "job_types": some_type_names(tx, 5),
    }


def _is_idle(resource: dict[str, Any]) -> bool:
    """Whether nobody uses it, waits for it or has paused it: one line is enough for all of these."""
    return not (resource["used"] or resource["waiting"] or resource["paused"])


def _attention(tx: Transaction) -> list[dict[str, Any]]:
    """The items that need attention, each with its page; pauses have a line of their own above."""
    return [{**item_json(item), "link": _link(item)} for item in read_attention(tx) if item.kind != "paused"]


def _link(item: AttentionItem) -> str:
    if item.can_be_seen:
        return f"/ui/events?{urlencode({'name': item.kind})}"
    if item.schedule_id is not None:
        return f"/ui/{'endpoints' if item.is_endpoint else 'schedules'}/{item.schedule_id}"
    match item.kind:
        case "open_reader":
            return "/ui/workers"
        case "failing":
            return "/ui/endpoints" if item.is_endpoint else "/ui/schedules"
        case "no_worker" | "starved":
            return f"/ui/queue?{urlencode({'resource': item.resource or ''})}"
        case "delivery":
            return "/ui/webhooks?status=FAILED"
    if item.job_id is not None:
        return f"/ui/jobs/{item.job_id}"
    return f"/ui/jobs?{urlencode({'status': 'FAILED', 'type': item.type or ''})}"


def read_timeline(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    by_worker = request.text("by") == "worker"
    window = _window(request)
    if window is not None:
        since, until = window
        spans, is_cut = spans_since(tx, since, until)
        return _timeline(tx, request, spans, is_cut, since, until, None, by_worker=by_worker)
    chosen = request.text("zoom")
    zoom = chosen if chosen in ZOOMS else "15m"
    since = tx.now - timedelta(seconds=ZOOMS[zoom][1])
    spans, is_cut = spans_since(tx, since)
    shortest = tx.now - timedelta(seconds=ZOOMS["2m"][1])
    if chosen not in ZOOMS and spans and all(span.started_at >= shortest for span in spans):
        # On a new store the picture would be empty, with a thin line at its end.
        zoom, since = "2m", shortest
    return _timeline(tx, request, spans, is_cut, since, tx.now, zoom, by_worker=by_worker)


def _window(request: PageRequest) -> tuple[datetime, datetime] | None:
    """The stretch of time in the address, in milliseconds since 1970; None to follow what happens now."""
    bounds = [request.text("from") or "", request.text("to") or ""]
    if not all(text.isascii() and text.isdigit() and len(text) == 13 for text in bounds):
        return None
    since, until = (datetime.fromtimestamp(int(text) / 1000, UTC) for text in bounds)
    return (since, until) if timedelta(milliseconds=100) <= until - since <= timedelta(days=1) else None


def _timeline(
    tx: Transaction, request: PageRequest, spans: list[Span], is_cut: bool, since: datetime, until: datetime,
    zoom: str | None, *, by_worker: bool,
) -> dict[str, Any]:  # fmt: skip
    """Data of a stretch of time to draw; without a zoom it is in the past, and stands still."""
    drawn = charts.lanes(spans, since, until, request.zone, by_worker=by_worker)
    length = until - since
    line, waiting = direct_line(tx, LINE_SHOWN)
    return {
        "line": line,
        "in_line": waiting,
        "zoom": zoom,
        "zooms": {name: words for name, (words, _) in ZOOMS.items()},
        "since": since,
        "until": until,
        "earlier": _window_link(request, since - length, since),
        "later": _window_link(request, until, until + length) if until + length < tx.now else None,
        "lanes": drawn,
        "ticks": charts.time_ticks(since, until, request.zone),
        "is_cut": is_cut,
        "shown": len(spans),
        "directs": sum(span.is_direct for span in spans),
        "live": {worker.id for worker in live_workers(tx)},
        "by_worker": by_worker,
        "resources": listed(sorted({span.resource for span in spans})) if spans else "",
    }


def _window_link(request: PageRequest, since: datetime, until: datetime) -> str:
    bounds = {name: str(round(at.timestamp() * 1000)) for name, at in (("from", since), ("to", until))}
    return request.link_with("/ui/timeline", zoom=None, **bounds)
