"""The jobs of a lane in their order: the first ones, and a walk behind them for those that no index finds.

Guards LIM-03 and LIM-07 against a long queue of jobs that may not start. A claim reads only a part of the lane and
remembers where it stopped, and the next claim of the process goes on there: each job is reached after a few claims.
What is remembered is a hint, kept in memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdbeat.store.transaction import Row, Transaction

DEPTH = 5000
"""So many jobs are read by a claim that would start nothing otherwise."""
PART = 128
"""So many are read by a claim that has others to start."""
_AGAIN = timedelta(seconds=5)
"""How long after the end was reached a walk begins anew, for jobs that were put in before its place."""

PLACE = "effective_priority, position, created_at, id, resource, type, partition, weight, affinity, put_first"
PARTITION, WEIGHT, AFFINITY, PUT_FIRST = 6, 7, 8, 9

_LANE = (
    f"SELECT {PLACE} FROM jobs INDEXED BY jobs_ready "
    "WHERE status = 'QUEUED' AND hold = 0 AND resource = :resource AND type = :type"
)
_FIRST = f"{_LANE} ORDER BY effective_priority DESC, position, created_at, id LIMIT :count FOR UPDATE SKIP LOCKED"
_NEXT_OF_PRIORITY = (
    f"{_LANE} AND effective_priority = :priority AND (position, created_at, id) > (:position, :created_at, :id) "
    "ORDER BY position, created_at, id LIMIT :count"
)
_OF_LOWER_PRIORITY = (
    f"{_LANE} AND effective_priority < :priority "
    "ORDER BY effective_priority DESC, position, created_at, id LIMIT :count"
)
_LOCKED = (
    f"SELECT {PLACE} FROM jobs WHERE id IN :ids AND status = 'QUEUED' AND hold = 0 "
    "ORDER BY effective_priority DESC, position, created_at, id FOR UPDATE SKIP LOCKED"
)


@dataclass(frozen=True, slots=True)
class Walk:
    """How far a walk through a lane has come."""

    place: Row
    """The row of PLACE behind which it goes on."""
    ended_at: datetime | None = None
    """When it came to the end of the lane."""


def first_of_lane(tx: Transaction, resource: str, type_: str, count: int) -> list[Row]:
    """Rows of PLACE of the first jobs of a lane, locked."""
    return tx.rows(_FIRST, resource=resource, type=type_, count=count)


def locked(tx: Transaction, ids: Collection[str]) -> list[Row]:
    """Rows of PLACE of those of these jobs that are still ready, locked, in order."""
    return tx.rows(_LOCKED, ids=list(ids)) if ids else []


def behind(tx: Transaction, place: Row, count: int) -> list[Row]:
    """Rows of PLACE of the next jobs of its lane, not locked."""
    priority, position, created_at, job_id, resource, type_ = place[:6]
    lane = {"resource": resource, "type": type_, "priority": priority}
    rows = tx.rows(_NEXT_OF_PRIORITY, position=position, created_at=created_at, id=job_id, count=count, **lane)
    if len(rows) < count:
        rows = [*rows, *tx.rows(_OF_LOWER_PRIORITY, count=count - len(rows), **lane)]
    return rows


def unnamed_behind(tx: Transaction, place: Row, depth: int, count: int) -> list[Row]:
    """Jobs without a partition, which have no index of their own, behind the first ones of a lane, locked."""
    walks, key = tx.terms.walks, ("unnamed", *place[4:6])
    walk = walks.get(key)
    if walk is None or (walk.ended_at is not None and walk.ended_at + _AGAIN <= tx.now):
        walk = Walk(place)
    rows = behind(tx, walk.place, depth)
    unnamed = [row for row in rows if not row[PARTITION]]
    if not unnamed:
        walk = Walk(rows[-1] if rows else walk.place, (walk.ended_at or tx.now) if len(rows) < depth else None)
    walks[key] = walk
    return locked(tx, [row[3] for row in unnamed[:count]])


def next_part(tx: Transaction, resource: str, type_: str, first: int) -> list[Row]:
    """The next part of a lane behind its first jobs, not locked; at the end it begins anew."""
    walks, key = tx.terms.walks, ("all", resource, type_)
    walk = walks.pop(key, None)
    if walk is None:
        head = first_of_lane(tx, resource, type_, first)
        if len(head) < first:
            return []
        walk = Walk(head[-1])
    rows = behind(tx, walk.place, DEPTH)
    if len(rows) == DEPTH:
        walks[key] = Walk(rows[-1])
    return rows
