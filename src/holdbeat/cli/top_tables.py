"""The tables of `top`: short ids, titles, and distances of time instead of instants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdbeat.cli.job_tables import pause_line, progress_of, wait_line
from holdbeat.cli.output import Drawn, Table, shown, span, table
from holdbeat.domain.clock import from_iso

BAR = 10
STYLES = {
    "id": "dim", "title": "bold", "name": "bold", "resource": "cyan", "progress": "blue", "for": "green",
    "waits for": "yellow", "heartbeat": "green", "failures": "red", "next": "green",
}  # fmt: skip


def short(id_: str) -> str:
    """The end of an id. Every verb takes it in place of the whole one."""
    return id_[-8:]


def since(at: str | None, now: datetime) -> str:
    return "" if at is None else span(max(0.0, (now - from_iso(at)).total_seconds()))


def until(at: str | None, now: datetime) -> str:
    if at is None:
        return ""
    distance_s = (from_iso(at) - now).total_seconds()
    return "now" if distance_s < 1 else f"in {span(distance_s)}"


def running_table(jobs: Sequence[Mapping[str, Any]], now: datetime) -> Table:
    return _coloured(
        ("id", "title", "type", "resource", "for", "progress"),
        [
            (short(job["id"]), _title(job), job["type"], job["resource"], since(job["started_at"], now), _bar(job))
            for job in jobs
        ],
        leaves=("resource", "type"),
    )


def queue_table(queue: Mapping[str, Any], now: datetime) -> list[Drawn]:
    pauses = [pause_line(pause, f"for {since(pause['paused_at'], now)}") for pause in queue["paused"]]
    rows = [
        (
            number,
            short(job["id"]),
            _title(job),
            job["type"],
            job["priority"] or "",
            job["resource"],
            since(job["created_at"], now),
            _reason(job, now),
        )
        for number, job in enumerate(queue["items"], 1)
    ]
    columns = ("#", "id", "title", "type", "priority", "resource", "for", "waits for")
    return [*pauses, _coloured(columns, rows, leaves=("priority", "resource", "type"))]


def direct_table(reservations: Sequence[Mapping[str, Any]], now: datetime) -> Table:
    """Those that hold a slot, then those that wait, in the order in which they get one."""
    in_turn = sorted(reservations, key=lambda reservation: (reservation["granted_at"] is None, reservation["id"]))
    return _coloured(
        ("id", "title", "resource", "client", "state", "for"),
        [
            (
                short(reservation["id"]),
                shown(reservation["title"])[:40],
                reservation["resource"],
                shown(reservation["client"] or ""),
                "RUNNING" if reservation["granted_at"] else "QUEUED",
                since(reservation["granted_at"] or reservation["requested_at"], now),
            )
            for reservation in in_turn
        ],
        leaves=("client",),
    )


def workers_table(workers: Sequence[Mapping[str, Any]], now: datetime) -> Table:
    return _coloured(
        ("worker", "kind", "slots", "resources", "heartbeat", "note"),
        [
            (
                worker["id"],
                worker["kind"],
                worker["slots"],
                "all" if worker["resources"] is None else ", ".join(worker["resources"]),
                f"{since(worker['heartbeat_at'], now)} ago",
                "stopping" if worker["stopping_at"] else "",
            )
            for worker in workers
        ],
        leaves=("kind", "resources"),
    )


def schedules_table(schedules: Sequence[Mapping[str, Any]], now: datetime) -> Table:
    return _coloured(
        ("name", "when", "next", "failures", "last"),
        [
            (
                schedule["name"],
                schedule["cron"] or f"every {span(schedule['interval_s'])}",
                "paused" if schedule["paused_until"] else until(schedule["fires_at"], now),
                schedule["failure_count"] or "",
                f"{since(schedule['last_run_at'], now)} ago" if schedule["last_run_at"] else "",
            )
            for schedule in schedules
        ],
        whole=("name",),
        leaves=("last", "failures", "when"),
    )


def _coloured(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, whole: Sequence[str] = ("id",), leaves: Sequence[str]
) -> Table:
    return replace(table(columns, rows, whole=whole, leaves=leaves), styles=STYLES)


def _title(job: Mapping[str, Any]) -> str:
    title = str(job["title"])
    return title if len(title) <= 40 else f"{title[:39]}…"


def _bar(job: Mapping[str, Any]) -> str:
    """How far it is, as a bar and in words."""
    fraction = (job["progress"] or {}).get("fraction")
    filled = round(BAR * min(1.0, max(0.0, fraction or 0.0)))
    bar = "" if fraction is None else f"{'━' * filled}{'╌' * (BAR - filled)} "
    return f"{bar}{progress_of(job)}"


def _reason(job: Mapping[str, Any], now: datetime) -> str:
    if waits := wait_line(job):
        return waits
    if job["not_before"] and from_iso(job["not_before"]) > now:
        return f"starts {until(job['not_before'], now)}"
    return ", ".join(code.replace("_", " ") for code in job["blocked_by"])
