"""A single job and its Event in one statement, which commits by itself: one round trip instead of three.

A caller in an event loop need not go through a thread for it (`loop_link.py`).

Guards DEC-008 without the id of a transaction: if the answer is lost, the same statement is run again under the same
job id. Whichever of the two the server executes first stores the job, and the other one stores nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from psycopg import errors as pg

from holdbeat.domain.clock import Clock, to_millis
from holdbeat.store.postgres.database import Link, StoreConnection
from holdbeat.store.postgres.errors import LOST, RACES, READ_ONLY
from holdbeat.store.postgres.loop_link import LoopLink
from holdbeat.store.postgres.lost_commit import until_answered
from holdbeat.store.postgres.pipeline import StatementPipeline
from holdbeat.store.postgres.transaction import ColumnTypes, PostgresTransaction
from holdbeat.store.postgres.wakeups import PostgresWakeups
from holdbeat.store.single_insert import SINGLE_INSERT_TOPICS, SingleInsert
from holdbeat.store.transaction import Row, StoreTerms
from holdbeat.store.work import Coalesced

ANSWERED = (*RACES, READ_ONLY, pg.QueryCanceled, pg.DiskFull)
"""The server has said that it stored nothing."""


@lru_cache(maxsize=256)
def _statement(columns: tuple[tuple[str, str], ...], priority: int, is_checked: bool) -> str:
    """Inserts the job, if its type is as it was read, and its Event; the answer has a row if it did.

    Without the check nothing is compared with the type: it was, when the statement was sent for the first time. Only
    then can the job be there before; the server takes longer for an insert that may find it.
    """
    condition = "WHERE EXISTS (SELECT FROM job_types WHERE name = %(type)s AND announced_at = %(type_announced_at)s)"
    return (
        f"WITH job AS (INSERT INTO jobs ({', '.join([name for name, _ in columns])}, hold, position, created_at) "
        f"SELECT {', '.join([f'%({name})s::{type_}' for name, type_ in columns])}, 0, "
        f"nextval('positions_{priority:d}'), "
        "COALESCE(%(now)s::timestamptz, date_trunc('milliseconds', clock_timestamp())) "
        f"{condition if is_checked else 'ON CONFLICT (id) DO NOTHING'} RETURNING id, position, created_at), "
        "event AS (INSERT INTO events (name, at, job_id, data) "
        "SELECT %(event_name)s, created_at, id, %(event_data)s::json FROM job) "
        "SELECT position, created_at, clock_timestamp() FROM job"
    )


class SingleJobStatement:
    """The statement of one single job, to be sent again under the same id if its answer is lost."""

    def __init__(self, insert: SingleInsert[Any], types: Mapping[str, str], now: datetime | None) -> None:
        """`types` are those of the columns of `jobs`. Without `now` the time is the database's."""
        self.insert = insert
        self._columns = tuple([(name, types[name]) for name in insert.columns])
        self._job_id = insert.job_id
        self.values: dict[str, Any] = {
            **insert.columns,
            "now": now,
            "type_announced_at": insert.type_announced_at,
            "event_name": insert.event["name"],
            "event_data": insert.event["data"],
        }
        self.text = _statement(self._columns, insert.columns["priority"], True)
        """Its answer has the position, the time and the database's clock; no row if the type has changed."""

    def execute(self, link: Link, clock: Clock, timeout_s: Callable[[], float]) -> Row | None:
        """Stores the job, whatever happens to connections."""
        try:
            return _execute(link.get(), self.text, self.values)
        except ANSWERED:
            raise
        except LOST:
            link.drop()
            return self.execute_again(link, clock, timeout_s)

    def execute_again(self, link: Link, clock: Clock, timeout_s: Callable[[], float]) -> Row:
        """Stores the job after its answer was lost; the answer of whichever statement was the first."""
        text = _statement(self._columns, self.values["priority"], False)

        def execute(connection: StoreConnection) -> Row:
            return _execute(connection, text, self.values) or _stored(connection, self._job_id)

        return until_answered(link, execute, clock, timeout_s)


class SingleJobs:
    """Stores single jobs of one store: from a thread over its own connection, or from an event loop."""

    def __init__(
        self,
        url: str,
        terms: StoreTerms,
        types: ColumnTypes,
        clock: Clock,
        timeout_s: Callable[[], float],
        wakeups: PostgresWakeups,
        *,
        is_own_clock: bool,
    ) -> None:
        self._url = url
        self._terms = terms
        self._types = types
        self._clock = clock
        self._timeout_s = timeout_s
        self._wakeups = wakeups
        self._is_own_clock = is_own_clock
        """Whether jobs get the database's time."""
        self.loop_link = LoopLink(url)
        self.close = self.loop_link.close

    def write(self, link: Link, verb: Callable[..., Any], batch: Any) -> StoredSingleJob | None:
        """Stores a single job; None for whatever is none, and if the type has changed."""
        statement = self._statement(link.get(), verb, batch)
        if statement is None:
            return None
        asked = self._clock.monotonic()
        row = statement.execute(link, self._clock, self._timeout_s)
        return None if row is None else StoredSingleJob(statement.insert, row, asked)

    async def write_in_loop(self, verb: Callable[..., Any], batch: Any) -> StoredSingleJob | None:
        """`write` in the event loop of the caller; None also if another one is under way there."""
        connection = self.loop_link.reserve() if getattr(verb, "alone", None) is not None else None
        if connection is None:
            return None
        try:
            statement = self._statement(connection, verb, batch)
            if statement is None:
                return None
            asked = self._clock.monotonic()
            notice = self._wakeups.send_yourself(SINGLE_INSERT_TOPICS)
            try:
                row = await self.loop_link.execute(statement.text, statement.values, notice)
            except ANSWERED:
                return None  # nothing is stored; a writer tries again, and says why if it cannot
            except LOST:
                row = await asyncio.to_thread(self._execute_again, statement)
            return (
                None if row is None else StoredSingleJob(statement.insert, row, asked, is_notified=notice is not None)
            )
        finally:
            self.loop_link.release()

    def _execute_again(self, statement: SingleJobStatement) -> Row:
        link = Link(self._url)
        try:
            return statement.execute_again(link, self._clock, self._timeout_s)
        finally:
            link.close()

    def _statement(
        self, connection: StoreConnection, verb: Callable[..., Any], batch: Any
    ) -> SingleJobStatement | None:
        if not isinstance(verb, Coalesced) or verb.alone is None:
            return None
        now = self._clock.now()
        insert = verb.alone(PostgresTransaction(connection, now, self._terms, self._types), batch)
        return (
            None
            if insert is None
            else SingleJobStatement(insert, self._types["jobs"], None if self._is_own_clock else now)
        )


class StoredSingleJob:
    def __init__(self, insert: SingleInsert[Any], row: Row, asked: float, *, is_notified: bool = False) -> None:
        self.is_notified = is_notified
        """Whether other processes were told with it."""
        position, created_at, self.database_clock = row
        created_at = to_millis(created_at)
        self.asked = asked
        """When the statement was sent, on the monotonic clock."""
        self.result = insert.answer(position, created_at)
        event = insert.event
        self.event: Row = (event["name"], created_at, insert.job_id, None, None, None, None, event["data"])


def _execute(connection: StoreConnection, sql: str, values: dict[str, Any]) -> Row | None:
    with StatementPipeline(connection) as pipeline:
        answer = pipeline.send(sql, values)
    return answer.fetchone()


def _stored(connection: StoreConnection, job_id: str) -> Row:
    """Reads what the first of two equal statements has stored."""
    row = connection.execute(
        "SELECT position, created_at, clock_timestamp() FROM jobs WHERE id = %s", [job_id]
    ).fetchone()
    assert row is not None, "a job that was stored a moment ago is there"
    return row
