"""Throttles as rows: until when the limits start nothing of a partition, because a called service asked for a pause.

Guards LIM-06: the rows are written with the end of the throttled run, and read by every claim. A claim that has already
begun may start one more.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

from holdbeat.domain import events
from holdbeat.domain.capacity import Throttle, throttle_of
from holdbeat.domain.clock import iso
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.transaction import Transaction


class Throttled(NamedTuple):
    """Work whose called service asked for a later retry."""

    resource: str
    type: str
    partition: str
    retry_after_s: float
    job_id: str | None = None
    reservation_id: str | None = None


def throttle(tx: Transaction, throttled: Iterable[Throttled]) -> None:
    """Holds back what the limits of this work cover in its partition."""
    limits = limits_in_force(tx)
    now = tx.now.timestamp()
    ends: dict[Throttle, float] = {}
    for work in throttled:
        pools = limits.covering(work.resource, work.type)
        if not pools:
            continue
        for pool in pools:
            place = throttle_of(pool.key, pool.limit, work.type, work.partition)
            ends[place] = max(ends.get(place, 0.0), now + work.retry_after_s)
        tx.record(
            events.LIMIT_THROTTLED,
            job_id=work.job_id,
            limits=[pool.limit.name for pool in pools],
            type=work.type,
            partition=work.partition or None,
            until=iso(tx.now + timedelta(seconds=work.retry_after_s)),
            **({"reservation_id": work.reservation_id} if work.reservation_id else {}),
        )
    if ends:
        tx.execute(
            "INSERT INTO throttles (key, type, partition, until) SELECT r.key, r.type, r.partition, r.until "
            "FROM rows(:rows; key text, type text, partition text, until real) AS r WHERE true "
            "ON CONFLICT (key, type, partition) DO UPDATE SET until = excluded.until "
            "WHERE throttles.until < excluded.until",
            rows=[(*place, until) for place, until in sorted(ends.items())],
        )


def throttles_in_force(tx: Transaction) -> dict[Throttle, float]:
    """Every throttle that holds now, and until when."""
    rows = tx.rows("SELECT key, type, partition, until FROM throttles WHERE until > :now", now=tx.now.timestamp())
    return {Throttle(*row[:3]): float(row[3]) for row in rows}


def lift_throttles(tx: Transaction, name: str) -> None:
    tx.execute(
        "DELETE FROM throttles WHERE key = :name OR substr(key, 1, length(:prefix)) = :prefix",
        name=name,
        prefix=f"{name}/",
    )
