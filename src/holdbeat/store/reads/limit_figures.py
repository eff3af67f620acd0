"""Limits with what they hold now: used slots, what waits, and when a rate permits the next start."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from holdbeat.domain import events
from holdbeat.domain.capacity import Usage
from holdbeat.domain.limit import EACH, Limit, Limits, Origin
from holdbeat.domain.rate import next_start
from holdbeat.store.limits.in_force import limit_of_row, limits_in_force, rows_of
from holdbeat.store.limits.rates import instant_of, rates_in_use
from holdbeat.store.limits.throttles import throttles_in_force
from holdbeat.store.limits.usage import usage
from holdbeat.store.reads.stats import ready_jobs
from holdbeat.store.transaction import Row, Transaction

MANY = 100
"""So many partitions of a limit are listed."""


@dataclass(frozen=True, slots=True)
class LimitFigures:
    limit: Limit
    declared: Limit | None
    """What settings declare under this name."""
    used: int
    waiting: int
    """Jobs that could run if limits and workers had room."""
    next_start_at: datetime | None
    """When the rate permits the next start, if that lies ahead; not for limits that count by partition."""
    throttled: tuple[tuple[str, datetime], ...]
    """The partitions that start nothing because a called service asked for a pause, and until when."""
    changed_at: datetime | None
    changed_by: str | None


def limit_figures(tx: Transaction) -> list[LimitFigures]:
    """All limits in force, by name."""
    limits = limits_in_force(tx)
    settings, operator = rows_of(tx, Origin.SETTINGS), rows_of(tx, Origin.OPERATOR)
    used = _used(limits, usage(tx))
    waiting = _count(limits, ready_jobs(tx))
    due = {place.key: at for place, at in rates_in_use(tx).items() if not place.partition}
    throttled: dict[str, dict[str, float]] = {}
    for throttle, until in throttles_in_force(tx).items():
        ends = throttled.setdefault(throttle.key.partition("/")[0], {})
        ends[throttle.partition] = max(until, ends.get(throttle.partition, 0.0))
    now = tx.now.timestamp()
    figures = []
    for limit in sorted(limits, key=lambda limit: limit.name):
        row = operator.get(limit.name) or settings.get(limit.name)
        at = None
        if limit.rate is not None and not limit.per_partition and EACH not in (limit.resource, limit.type):
            at = next_start(limit.rate, due.get(limit.name), now)
        figures.append(
            LimitFigures(
                limit,
                limit_of_row(settings[limit.name]) if limit.name in settings else None,
                used.get(limit.name, 0),
                waiting.get(limit.name, 0),
                None if at is None or at <= now else instant_of(tx, at),
                tuple(
                    (part, instant_of(tx, end)) for part, end in sorted(throttled.get(limit.name, {}).items())[:MANY]
                ),
                None if row is None else tx.time(row[11]),
                None if row is None else row[12],
            )
        )
    return figures


def _used(limits: Limits, leases: list[Usage]) -> dict[str, int]:
    """How many slots of each limit are held, by its name."""
    used: dict[str, int] = {}
    for resource, type_, amount, _, weight in leases:
        for pool in limits.covering(resource, type_):
            slots = amount if weight is None or pool.limit.resource is None else weight
            used[pool.limit.name] = used.get(pool.limit.name, 0) + int(slots)
    return used


def _count(limits: Limits, rows: list[Row]) -> dict[str, int]:
    """How many of these each limit covers, by its name."""
    counts: dict[str, int] = {}
    for resource, type_, amount in rows:
        for pool in limits.covering(resource, type_):
            counts[pool.limit.name] = counts.get(pool.limit.name, 0) + int(amount)
    return counts


def last_passed_by(tx: Transaction, job_id: str) -> events.Event | None:
    """The last time that another job went before this one because of what a worker had loaded."""
    row = tx.one(
        "SELECT at, worker_id, data FROM events WHERE job_id = :id AND name = :name ORDER BY id DESC LIMIT 1",
        id=job_id,
        name=events.JOB_PASSED_BY,
    )
    if row is None:
        return None
    return events.Event(events.JOB_PASSED_BY, tx.instant(row[0]), job_id, worker_id=row[1], data=json.loads(row[2]))


def affinity_counts(tx: Transaction) -> dict[str, tuple[int, int]]:
    """How often workers went on with an affinity, and changed it, by resource."""
    rows = tx.rows("SELECT resource, kept, switches FROM affinity_counts ORDER BY resource")
    return {row[0]: (int(row[1]), int(row[2])) for row in rows}
