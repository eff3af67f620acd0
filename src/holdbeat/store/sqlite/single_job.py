"""A single job and its Event, written without reading its type: the insert itself sees whether that has changed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from holdbeat.domain.position import GAP
from holdbeat.store.single_insert import SingleInsert
from holdbeat.store.sqlite.transaction import LAST_EVENT_ID, SqliteTransaction, bound
from holdbeat.store.transaction import Row

_EVENT = f"INSERT INTO events (id, name, at, job_id, data) VALUES ({LAST_EVENT_ID} + 1, ?, ?, ?, ?)"


@lru_cache(maxsize=256)
def _insertion(columns: tuple[str, ...]) -> str:
    values = ", ".join(["?"] * len(columns))
    return (
        f"INSERT INTO jobs ({', '.join(columns)}, created_at, position) "
        f"SELECT {values}, ?, ({LAST_EVENT_ID} + 1) * {GAP} "
        "WHERE EXISTS (SELECT 1 FROM job_types WHERE name = ? AND announced_at = ?)"
    )


def insert_single_job(tx: SqliteTransaction, insert: SingleInsert[Any]) -> tuple[int, Row] | None:
    """Stores the job and its Event: the position and the row of the Event. None if the type of the job has changed."""
    columns, connection, now = insert.columns, tx.connection, bound(tx.now)
    values = [bound(value) for value in columns.values()]
    connection.execute(_insertion(tuple(columns)), (*values, now, columns["type"], bound(insert.type_announced_at)))
    if connection.changes() == 0:
        return None
    name, data = insert.event["name"], insert.event["data"]
    connection.execute(_EVENT, (name, now, insert.job_id, data))
    event_id = connection.last_insert_rowid()
    tx.event_ids_used(event_id - 1, event_id)
    return event_id * GAP, (name, tx.now, insert.job_id, None, None, None, None, data)
