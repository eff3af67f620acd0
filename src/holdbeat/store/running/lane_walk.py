"""The jobs of a lane in their order: the first ones, and a walk behind them for those that no index finds.

Guards LIM-03 and LIM-07 against a long queue of jobs that may not start. A claim reads only a part of the lane and
remembers where it stopped, and the next claim of the process goes on there: each job is reached after a few claims.
What is remembered is a hint, kept in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

from holdbeat.store.transaction import Row, Transaction

DEPTH = 5000
"""So many jobs are read by a claim that would start nothing otherwise."""
PART = 32
"""So many are read by a claim that has others to start."""
ABOVE_ALL = 101
"""Above every priority."""
_AGAIN = timedelta(seconds=5)
"""How long after the end was reached a walk begins anew, for jobs that were put in before its place."""

PLACE = "effective_priority, position, created_at, id, resource, type, partition, weight, affinity, put_first"
PRIORITY, CREATED_AT, ID, RESOURCE, TYPE, PARTITION, WEIGHT, AFFINITY, PUT_FIRST = 0, 2, 3, 4, 5, 6, 7, 8, 9
in_priority = itemgetter(1, 2, 3)
"""What orders the jobs of one priority: position, created_at, id."""

_LANE = (
    f"SELECT {PLACE} FROM jobs INDEXED BY jobs_ready "
    "WHERE status = 'QUEUED' AND hold = 0 AND resource = :resource AND type = :type"
)
BY_PARTITION = (
    "FROM jobs INDEXED BY jobs_turns WHERE status = 'QUEUED' AND hold BETWEEN 0 AND 0 AND partition <> '' "
    "AND resource = :resource AND type = :type"
)
"""The jobs of a lane that have a partition, in the order of priority, partition and place."""
FIRST = f"{_LANE} ORDER BY effective_priority DESC, position, created_at, id LIMIT :count"
_FIRST = f"{FIRST} FOR UPDATE SKIP LOCKED"
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

Query = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Walk:
    """How far a walk through a lane has come."""

    place: Row | None = None
    """The row of PLACE behind which it goes on; None: at the beginning."""
    ended_at: datetime | None = None
    """When it came to the end of the lane."""


def first_of_lane(tx: Transaction, resource: str, type_: str, count: int) -> list[Row]:
    """Rows of PLACE of the first jobs of a lane, locked."""
    return tx.rows(_FIRST, resource=resource, type=type_, count=count)


def locked(tx: Transaction, ids: Collection[str]) -> list[Row]:
    """Rows of PLACE of those of these jobs that are still ready, locked, in order."""
    return tx.rows(_LOCKED, ids=list(ids)) if ids else []


def unnamed_queries(tx: Transaction, resource: str, type_: str, depth: int) -> list[Query]:
    """The queries of the next part of the walk for jobs without a partition, which have no index of their own."""
    walk = tx.terms.walks.get(("unnamed", resource, type_))
    return _behind(resource, type_, None if walk is None else walk.place, depth)


def unnamed(tx: Transaction, resource: str, type_: str, depth: int, answers: Sequence[list[Row]]) -> list[Row]:
    """The jobs without a partition in the answers to these queries, not locked. Without any, the walk goes on."""
    rows = [row for answer in answers for row in answer][:depth]
    unnamed = [row for row in rows if not row[PARTITION]]
    if not unnamed:
        key = ("unnamed", resource, type_)
        walk = tx.terms.walks.get(key) or Walk()
        ended_at = (walk.ended_at or tx.now) if len(rows) < depth else None
        is_over = ended_at is not None and ended_at + _AGAIN <= tx.now
        tx.terms.walks[key] = Walk() if is_over else Walk(rows[-1] if rows else walk.place, ended_at)
    return unnamed


def next_part(tx: Transaction, resource: str, type_: str) -> list[Row]:
    """The next part of a lane, not locked; at the end it begins anew."""
    walks, key = tx.terms.walks, ("all", resource, type_)
    walk = walks.pop(key, Walk())
    answers = tx.all_rows(*_behind(resource, type_, walk.place, DEPTH))
    rows = [row for answer in answers for row in answer][:DEPTH]
    if len(rows) == DEPTH:
        walks[key] = Walk(rows[-1])
    return rows


def _behind(resource: str, type_: str, place: Row | None, count: int) -> list[Query]:
    """Queries for the next jobs of a lane: at least so many together, if there are."""
    lane = {"resource": resource, "type": type_, "count": count}
    if place is None:
        return [(_OF_LOWER_PRIORITY, {**lane, "priority": ABOVE_ALL})]
    priority, position, created_at, job_id = place[:4]
    after = {"priority": priority, "position": position, "created_at": created_at, "id": job_id}
    return [(_NEXT_OF_PRIORITY, {**lane, **after}), (_OF_LOWER_PRIORITY, {**lane, "priority": priority})]
