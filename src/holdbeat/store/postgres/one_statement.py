"""A lone job and its Event in one statement, which commits by itself: one round trip instead of three.

Guards DEC-008 without the id of a transaction: if the answer is lost, the same statement is run again under the same
job id. Whichever of the two the server executes first stores the job, and the other one stores nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from psycopg import errors as pg

from holdbeat.domain.clock import Clock
from holdbeat.store.lone_insert import LoneInsert
from holdbeat.store.postgres.database import Link, StoreConnection
from holdbeat.store.postgres.errors import LOST, RACES
from holdbeat.store.postgres.lost_commit import until_answered
from holdbeat.store.postgres.pipeline import StatementPipeline
from holdbeat.store.postgres.transaction import plain
from holdbeat.store.transaction import Row

_ANSWERED = (*RACES, pg.QueryCanceled, pg.DiskFull)
"""The server has said that it stored nothing."""


@lru_cache(maxsize=256)
def _statement(columns: tuple[tuple[str, str], ...], priority: int, is_checked: bool) -> str:
    """Inserts the job, if its type is as it was read, and its Event; the answer has a row if there was none before.

    Without the check nothing is compared with the type: it was, when the statement was sent for the first time.
    """
    condition = "WHERE EXISTS (SELECT FROM job_types WHERE name = %(type)s AND announced_at = %(type_announced_at)s)"
    return (
        f"WITH job AS (INSERT INTO jobs ({', '.join([name for name, _ in columns])}, position, created_at) "
        f"SELECT {', '.join([f'%({name})s::{type_}' for name, type_ in columns])}, nextval('positions_{priority:d}'), "
        "COALESCE(%(now)s::timestamptz, date_trunc('milliseconds', clock_timestamp())) "
        f"{condition if is_checked else ''} ON CONFLICT (id) DO NOTHING RETURNING id, position, created_at), "
        "event AS (INSERT INTO events (name, at, job_id, data) "
        "SELECT %(event_name)s, created_at, id, %(event_data)s::json FROM job) "
        "SELECT position, created_at, clock_timestamp() FROM job"
    )


def insert_lone(
    link: Link,
    lone: LoneInsert[Any],
    types: Mapping[str, str],
    now: datetime | None,
    clock: Clock,
    patience_s: Callable[[], float],
) -> Row | None:
    """Stores the job; None if its type has changed. Answers its position, its time, and the database's clock.

    `types` are those of the columns of `jobs`. Without `now` the time is the database's.
    """

    def execute(connection: StoreConnection, is_checked: bool) -> Row | None:
        columns = tuple([(name, types[name]) for name in lone.columns])
        values = {name: plain(value) for name, value in lone.columns.items()}
        values |= {
            "now": now,
            "type_announced_at": lone.type_announced_at,
            "event_name": lone.event["name"],
            "event_data": lone.event["data"],
        }
        with StatementPipeline(connection) as pipeline:
            stored = pipeline.send(_statement(columns, values["priority"], is_checked), values)
        return stored.fetchone()

    def execute_again(connection: StoreConnection) -> Row:
        return execute(connection, is_checked=False) or _stored(connection, lone.job_id)

    connection = link.get()
    try:
        return execute(connection, is_checked=True)
    except _ANSWERED:
        raise
    except LOST:
        link.drop()
        return until_answered(link, execute_again, clock, patience_s)


def _stored(connection: StoreConnection, job_id: str) -> Row:
    """What the first of two equal statements has stored."""
    row = connection.execute(
        "SELECT position, created_at, clock_timestamp() FROM jobs WHERE id = %s", [job_id]
    ).fetchone()
    assert row is not None, "a job that was stored a moment ago is there"
    return row
