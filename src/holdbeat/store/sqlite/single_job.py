"""A single job and its Event, written without reading its type: the insert itself sees whether that has changed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from holdbeat.store.single_insert import SingleInsert
from holdbeat.store.sqlite.transaction import SqliteTransaction, bound
from holdbeat.store.transaction import Row

_EVENT = "INSERT INTO events (name, at, job_id, data) VALUES (?, ?, ?, ?)"


@lru_cache(maxsize=256)
def _insertion(columns: tuple[str, ...]) -> str:
    values = ", ".join(["?"] * (len(columns) + 2))
    return (
        f"INSERT INTO jobs ({', '.join(columns)}, position, created_at) SELECT {values} "
        "WHERE EXISTS (SELECT 1 FROM job_types WHERE name = ? AND announced_at = ?)"
    )


def insert_single_job(tx: SqliteTransaction, insert: SingleInsert[Any]) -> tuple[int, Row] | None:
    """Stores the job and its Event: the position and the row of the Event. None if the type of the job has changed."""
    columns, connection, now = insert.columns, tx.connection, bound(tx.now)
    priority = columns["priority"]
    (position,) = tx.next_positions({priority: 1})[priority]
    values = [bound(value) for value in columns.values()]
    values += (position, now, columns["type"], bound(insert.type_announced_at))
    connection.execute(_insertion(tuple(columns)), values)
    if connection.changes() == 0:
        return None
    name, data = insert.event["name"], insert.event["data"]
    connection.execute(_EVENT, (name, now, insert.job_id, data))
    return position, (name, tx.now, insert.job_id, None, None, None, None, data)
