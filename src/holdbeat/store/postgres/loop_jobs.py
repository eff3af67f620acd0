"""Jobs of one kind that tasks of an event loop submit together: one statement of the loop itself, which commits.

The way through a writer's thread has two round trips and seven statements, and takes the interpreter's lock from the
loop a dozen times. Guards DEC-008 as `single_jobs.py` does: after a lost answer the statement is run again under the
same ids, and whichever of the two the server executes first stores the jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import psycopg

from holdbeat.domain.clock import to_millis
from holdbeat.store.event_batches import packed
from holdbeat.store.postgres.database import Link, StoreConnection
from holdbeat.store.postgres.errors import LOST
from holdbeat.store.postgres.lost_commit import until_answered
from holdbeat.store.postgres.pipeline import StatementPipeline
from holdbeat.store.postgres.single_jobs import ANSWERED, SingleJobs
from holdbeat.store.postgres.transaction import PostgresTransaction, array
from holdbeat.store.single_insert import SINGLE_INSERT_TOPICS, UniformInsert
from holdbeat.store.transaction import Row
from holdbeat.store.work import Work, reply

log = logging.getLogger("holdbeat.store")

MOST_JOBS = 250
"""Jobs of one statement. The loop writes its text, and other tasks wait meanwhile."""

Committed = Callable[[list[Row], datetime, float, bool], None]
"""Called with the Events of a commit, the database's clock, the time of sending, and whether others were woken."""


@lru_cache(maxsize=256)
def _statement(columns: tuple[tuple[str, str], ...], varied: tuple[str, ...], priority: int, is_checked: bool) -> str:
    """Inserts the jobs, if their type is as it was read, and their Event; the answer has a row if it did."""
    condition = "WHERE EXISTS (SELECT FROM job_types WHERE name = %(type)s AND announced_at = %(type_announced_at)s)"
    return (
        f"WITH job AS (INSERT INTO jobs ({', '.join([name for name, _ in columns])}, id, params, title, hold, "
        f"position, created_at) SELECT {', '.join([f'%({name})s::{type_}' for name, type_ in columns])}, given.id, "
        f"given.params, given.title, 0, nextval('positions_{priority:d}'), "
        "(SELECT COALESCE(%(now)s::timestamptz, date_trunc('milliseconds', clock_timestamp()))) "
        f"FROM unnest(%(ids)s::{varied[0]}[], %(params)s::{varied[1]}[], %(titles)s::{varied[2]}[]) "
        "AS given(id, params, title) "
        f"{condition if is_checked else 'ON CONFLICT (id) DO NOTHING'} RETURNING id, position, created_at), "
        "event AS (INSERT INTO events (name, at, data, count, batch) SELECT %(event_name)s, created_at, "
        "%(event_data)s::json, %(count)s, %(event_batch)s::json FROM job LIMIT 1) "
        "SELECT array_agg(position ORDER BY id), min(created_at), clock_timestamp() FROM job HAVING count(*) > 0"
    )


class LoopJobs(SingleJobs):
    """Stores single jobs, and the jobs that tasks of one event loop submit together."""

    committed: Committed
    put: Callable[[list[Work]], None]
    """Hands calls to the writers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, works: list[Work]) -> bool:
        """Stores the jobs of calls of this event loop; False if the calls have to go to the writers."""
        verb: Any = works[0].verb
        if len(works) == 1 or getattr(verb, "uniform", None) is None or any(work.verb is not verb for work in works):
            return False
        connection = self.loop_link.reserve()
        if connection is None:
            return False
        is_begun = False
        try:
            now = self._clock.now()
            tx = PostgresTransaction(connection, now, self._terms, self._types)
            works = [work for work in works if work.begin()]
            insert = verb.uniform(tx, [work.args[0] for work in works]) if works else None
            if insert is not None and 1 < len(insert.job_ids) <= MOST_JOBS:
                storing = self._store(works, insert, self._text(insert, is_checked=True), self._values(insert, now))
                task = asyncio.get_running_loop().create_task(storing)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                is_begun = True
        except Exception:
            log.debug("jobs could not be prepared together; each call gets its own answer", exc_info=True)
        finally:
            if not is_begun:
                self.loop_link.release()
        return is_begun or not works

    async def _store(self, works: list[Work], insert: UniformInsert[Any], text: str, values: dict[str, Any]) -> None:
        asked = self._clock.monotonic()
        notice = self._wakeups.send_yourself(SINGLE_INSERT_TOPICS)
        try:
            row = await self._answer(insert, text, values, notice)
        except Exception as error:
            reply([(work, error) for work in works])
            return
        finally:
            self.loop_link.release()
        if row is None:
            self.put(works)  # nothing is stored; a writer tries again, and says why if it cannot
            return
        positions, created_at, database_clock = row
        created_at = to_millis(created_at)
        self.committed(_events(insert, created_at), database_clock, asked, notice is not None)
        reply(zip(works, insert.answers(positions, created_at), strict=True))

    async def _answer(
        self, insert: UniformInsert[Any], text: str, values: dict[str, Any], notice: str | None
    ) -> Row | None:
        """Executes the statement; None if the server refused it. If the answer is lost, stores the jobs again."""
        try:
            return await self.loop_link.execute(text, values, notice)
        except ANSWERED:
            return None
        except Exception as error:
            is_refused = isinstance(error, psycopg.Error) and not isinstance(error, LOST)
        return None if is_refused else await asyncio.to_thread(self._store_again, insert, values)

    def _text(self, insert: UniformInsert[Any], *, is_checked: bool) -> str:
        types = self._types["jobs"]
        columns = tuple([(name, types[name]) for name in insert.shared])
        varied = (types["id"], types["params"], types["title"])
        return _statement(columns, varied, insert.shared["priority"], is_checked)

    def _values(self, insert: UniformInsert[Any], now: datetime) -> dict[str, Any]:
        ((_, (batch_row,)),) = packed(_events(insert, now))
        return {
            **insert.shared,
            "ids": array(insert.job_ids),
            "params": array(insert.params),
            "titles": array(insert.titles),
            "now": None if self._is_own_clock else now,
            "type_announced_at": insert.type_announced_at,
            "event_name": insert.event["name"],
            "event_data": insert.event["data"],
            "count": len(insert.job_ids),
            "event_batch": batch_row[-1],
        }

    def _store_again(self, insert: UniformInsert[Any], values: dict[str, Any]) -> Row:
        """Stores the jobs after their answer was lost; the answer of whichever statement was the first."""
        text = self._text(insert, is_checked=False)

        def execute(connection: StoreConnection) -> Row:
            with StatementPipeline(connection) as pipeline:
                answer = pipeline.send(text, values)
            return answer.fetchone() or _stored(connection, insert.job_ids)

        link = Link(self._url)
        try:
            return until_answered(link, execute, self._clock, self._timeout_s)
        finally:
            link.close()


def _events(insert: UniformInsert[Any], at: datetime) -> list[Row]:
    name, data = insert.event["name"], insert.event["data"]
    return [(name, at, job_id, None, None, None, None, data) for job_id in insert.job_ids]


def _stored(connection: StoreConnection, job_ids: Sequence[str]) -> Row:
    """Reads what the first of two equal statements has stored."""
    row = connection.execute(
        "SELECT array_agg(position ORDER BY id), min(created_at), clock_timestamp() FROM jobs WHERE id = ANY(%s)",
        [list(job_ids)],
    ).fetchone()
    assert row is not None, "jobs that were stored a moment ago are there"
    return row
