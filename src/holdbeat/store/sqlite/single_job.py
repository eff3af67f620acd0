"""Plain jobs and their Event, written without reading their type: the insert itself sees whether that has changed."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any

from holdbeat.domain.position import GAP
from holdbeat.store.single_insert import SingleInsert, UniformInsert
from holdbeat.store.sqlite.transaction import LAST_EVENT_ID, SqliteTransaction, bound
from holdbeat.store.transaction import Row

MOST_JOBS = 64
"""Jobs of one statement. It is prepared anew for each number of jobs that comes."""
_EVENT = f"INSERT INTO events (id, name, at, job_id, data) VALUES ({LAST_EVENT_ID} + 1, ?, ?, ?, ?)"
_IF_TYPE_IS_KNOWN = "WHERE EXISTS (SELECT 1 FROM job_types WHERE name = ? AND announced_at = ?)"


@lru_cache(maxsize=256)
def _insertion(columns: tuple[str, ...]) -> str:
    values = ", ".join(["?"] * len(columns))
    return (
        f"INSERT INTO jobs ({', '.join(columns)}, created_at, position) "
        f"SELECT {values}, ?, ({LAST_EVENT_ID} + 1) * {GAP} {_IF_TYPE_IS_KNOWN}"
    )


@lru_cache(maxsize=256)
def _uniform_insertion(columns: tuple[str, ...], count: int) -> str:
    shared = ", ".join(["?"] * (len(columns) + 1))
    return (
        f"INSERT INTO jobs ({', '.join(columns)}, created_at, id, params, title, position) SELECT {shared}, job.* "
        f"FROM (VALUES {', '.join(['(?, ?, ?, ?)'] * count)}) AS job {_IF_TYPE_IS_KNOWN}"
    )


def insert_single_job(tx: SqliteTransaction, insert: SingleInsert[Any]) -> tuple[int, Row] | None:
    """Stores the job and its Event: the position and the row of the Event. None if the type of the job has changed."""
    columns, connection, now = insert.columns, tx.connection, bound(tx.now)
    values = [bound(value) if isinstance(value, datetime) else value for value in columns.values()]
    connection.execute(_insertion(tuple(columns)), (*values, now, columns["type"], bound(insert.type_announced_at)))
    if connection.changes() == 0:
        return None
    name, data = insert.event["name"], insert.event["data"]
    connection.execute(_EVENT, (name, now, insert.job_id, data))
    event_id = connection.last_insert_rowid()
    tx.event_ids_used(event_id - 1, event_id)
    return event_id * GAP, (name, tx.now, insert.job_id, None, None, None, None, data)


def insert_uniform_jobs(tx: SqliteTransaction, insert: UniformInsert[Any]) -> tuple[list[int], list[Row]] | None:
    """Stores the jobs and their Event: the positions and the rows of the Events. None if their type has changed."""
    connection, now, count = tx.connection, bound(tx.now), len(insert.job_ids)
    priority = insert.shared["priority"]
    positions = tx.next_positions({priority: count})[priority]
    columns, shared = tuple(insert.shared), [*map(bound, insert.shared.values()), now]
    type_ = (insert.shared["type"], bound(insert.type_announced_at))
    jobs = list(zip(insert.job_ids, insert.params, insert.titles, positions, strict=True))
    for first in range(0, count, MOST_JOBS):
        part = jobs[first : first + MOST_JOBS]
        connection.execute(_uniform_insertion(columns, len(part)), (*shared, *chain.from_iterable(part), *type_))
        if connection.changes() == 0:
            return None
    name, data = insert.event["name"], insert.event["data"]
    events = [(name, tx.now, job_id, None, None, None, None, data) for job_id in insert.job_ids]
    tx.append_events(events)
    return positions, events
