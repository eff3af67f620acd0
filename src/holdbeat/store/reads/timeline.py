"""The timeline: runs of a stretch of time, throughput by the minute, and how long work waited.

Keeps reads short: every query goes through `jobs_ran` by type, or through the few live leases,
so a long history behind the window costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdbeat.domain.clock import from_iso
from holdbeat.store.ended_runs import RUN_END, RUN_HAS_ENDED, RUN_OUTCOME, ended_types
from holdbeat.store.reads.rows import READY_SINCE
from holdbeat.store.transaction import Row, Transaction

MOST_SPANS = 1000
"""So many runs are drawn; of more, the newest."""
MOST_SAMPLED = 3000
"""Waits are measured on about so many runs, taken at random."""
MINUTE = timedelta(minutes=1)
LATEST_END = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of work in one slot: a run, or a reservation."""

    id: str
    """The run's id, or the reservation's."""
    job_id: str | None
    """None for a reservation."""
    type: str
    resource: str
    worker_id: str | None
    """None for a slot that a program borrowed."""
    slot: int | None
    started_at: datetime
    finished_at: datetime | None
    status: str | None
    """None while it executes."""
    error_kind: str | None = None
    title: str = ""

    @property
    def is_direct(self) -> bool:
        return self.job_id is None


@dataclass(slots=True)
class Minute:
    """The runs that ended in one minute, and how long they had waited for their start."""

    at: datetime
    ended: dict[str, int] = field(default_factory=dict)
    """Runs by outcome."""
    waits_s: list[float] = field(default_factory=list)
    """A sample of the waits, from when the work could have run to its start."""


def spans_since(
    tx: Transaction, since: datetime, until: datetime | None = None, *, limit: int = MOST_SPANS
) -> tuple[list[Span], bool]:
    """Runs and direct requests that were in execution at some time after `since`, and whether some are left out.

    The newest ends are kept; what still executes is always there. With `until` only those that began before it, and of
    these the ones that ended at most LATEST_END later: further ends would be read through for the sake of a few.
    """
    latest = None if until is None else until + LATEST_END
    window = "" if until is None else "AND {end} < :latest AND {start} < :until "
    bounds: dict[str, Any] = {"since": since} if until is None else {"since": since, "until": until, "latest": latest}
    columns = "r.id, r.job_id, r.type, r.resource, r.worker_id, r.slot, r.started_at, r.finished_at, r.status"
    rows: list[Row] = []
    for type_ in ended_types(tx):
        rows += tx.rows(
            f"SELECT {columns}, r.error_kind, j.title FROM jobs j JOIN job_runs r ON r.job_id = j.id "
            f"WHERE j.type = :type AND {RUN_HAS_ENDED} AND {RUN_END} > :since "
            f"{window.format(start='j.started_at', end=RUN_END)}AND r.worker_id IS NOT NULL "
            f"AND r.finished_at IS NOT NULL ORDER BY {RUN_END} DESC LIMIT :limit",
            type=type_,
            limit=limit + 1,
            **bounds,
        )
    rows += tx.rows(
        "SELECT r.id, NULL, r.type, r.resource, r.worker_id, l.slot, r.granted_at, r.finished_at, r.outcome, "
        "r.error_kind, r.title FROM direct_reservations r LEFT JOIN leases l ON l.reservation_id = r.id "
        "WHERE r.finished_at IS NOT NULL AND r.finished_at > :since "
        f"{window.format(start='r.granted_at', end='r.finished_at')}AND r.granted_at IS NOT NULL "
        "ORDER BY r.finished_at DESC LIMIT :limit",
        limit=limit + 1,
        **bounds,
    )
    ended = sorted((_span(tx, row) for row in rows), key=lambda span: span.finished_at or tx.now)
    is_cut = len(ended) > limit
    # What executes now: its end is not known, whatever its job or reservation says already.
    running = [
        _span(tx, row)
        for row in tx.rows(
            "SELECT l.id, l.job_id, l.type, l.resource, l.worker_id, l.slot, l.acquired_at, NULL, NULL, NULL, "
            "coalesce(j.title, r.title) FROM leases l LEFT JOIN jobs j ON j.id = l.job_id "
            "LEFT JOIN direct_reservations r ON r.id = l.reservation_id ORDER BY l.acquired_at, l.id LIMIT :limit",
            limit=limit,
        )
    ]
    if until is not None:
        running = [span for span in running if span.started_at < until]
    live = {span.id for span in running}
    return [span for span in ended[-limit:] if span.id not in live] + running, is_cut


def _span(tx: Transaction, row: Row) -> Span:
    id_, job_id, type_, resource, worker_id, slot, started_at, finished_at, status, error_kind, title = row
    ended_at = tx.time(finished_at)
    return Span(
        id_, job_id, type_, resource, worker_id, slot, tx.instant(started_at), ended_at, status, error_kind,
        title or type_,
    )  # fmt: skip


def minutes_since(tx: Transaction, since: datetime) -> list[Minute]:
    """Every minute from `since` (cut to its minute) to the one that is now, with what ended in it."""
    first = since.replace(second=0, microsecond=0)
    starts = (first + MINUTE * number for number in range(int((tx.now - first) // MINUTE) + 1))
    minutes = {start: Minute(start) for start in starts}
    types = ended_types(tx)
    if not types:
        return list(minutes.values())
    at_minute = f"substr({RUN_END}, 1, 16)" if tx.dialect == "sqlite" else f"date_trunc('minute', {RUN_END})"
    window: dict[str, Any] = {"types": types, "first": first}
    condition = f"j.type IN :types AND {RUN_HAS_ENDED} AND {RUN_END} >= :first"
    total = 0
    for at, outcome, amount in tx.rows(
        f"SELECT {at_minute}, {RUN_OUTCOME}, count(*) FROM jobs j INDEXED BY jobs_ran WHERE {condition} GROUP BY 1, 2",
        **window,
    ):
        total += int(amount)
        if (minute := minutes.get(_minute(tx, at))) is not None:
            minute.ended[outcome] = int(amount)
    waited = tx.rows(
        f"SELECT {at_minute}, {READY_SINCE.format(job='j.')}, j.started_at "
        f"FROM jobs j INDEXED BY jobs_ran WHERE {condition} AND substr(j.id, 33) <= :last "
        "AND EXISTS (SELECT 1 FROM job_runs r WHERE r.job_id = j.id AND r.worker_id IS NOT NULL)",
        **window,
        last=_last_sampled(1 + total // MOST_SAMPLED),
    )
    for at, ready_at, started_at in waited:
        if (minute := minutes.get(_minute(tx, at))) is not None:
            minute.waits_s.append(max(0.0, (tx.instant(started_at) - tx.instant(ready_at)).total_seconds()))
    return list(minutes.values())


def _last_sampled(every: int) -> str:
    """The highest end of the ids of one job in so many: their last four digits are random."""
    return f"{max(0, 0x10000 // every - 1):04x}"


def _minute(tx: Transaction, value: Any) -> datetime:
    return from_iso(f"{value}:00Z") if tx.dialect == "sqlite" else tx.instant(value)
