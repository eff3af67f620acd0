"""LoopLink: a connection for single statements of an event loop, used without a thread.

A call that goes through a writer's thread changes threads twice, which costs as much as a round trip. One statement at
a time is sent here; while it is under way, other calls share the writers' transactions as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any, TypeVar

import psycopg

from holdbeat.domain.clock import Clock
from holdbeat.store.postgres.database import StoreConnection, connect
from holdbeat.store.postgres.pipeline import Answer, Params, StatementPipeline
from holdbeat.store.postgres.transaction import INSERTED, bound
from holdbeat.store.postgres.wakeups import CHANNEL, NOTIFY_BEHIND
from holdbeat.store.transaction import Row
from holdbeat.store.work import CoalescedInsert

A = TypeVar("A")


class LoopLink:
    def __init__(self, url: str) -> None:
        self._url = url
        self._in_use = threading.Lock()
        self._connection: StoreConnection | None = None
        self._pipeline: StatementPipeline | None = None
        """Of the connection, for all its life: what nobody waits for is answered before the next statement."""
        self._is_connecting = False
        self._is_closed = False

    def reserve(self) -> StoreConnection | None:
        """Takes the connection, if there is one and nobody uses it; `release` must follow."""
        if self._is_closed or not self._in_use.acquire(blocking=False):
            return None
        if self._connection is not None and not self._connection.closed:
            return self._connection
        if not self._is_connecting:
            # In a thread, because the loop cannot wait for it. Until it is done, calls go to the writers.
            self._is_connecting = True
            threading.Thread(target=self._connect, name="holdbeat-connect", daemon=True).start()
        self._in_use.release()
        return None

    def release(self) -> None:
        """Gives the connection back."""
        if self._is_closed and self._connection is not None:
            self._connection.close()
        self._in_use.release()

    async def execute(self, sql: str, params: Params, notice: str | None = None) -> Row | None:
        """Runs a statement that commits by itself; its first row.

        `notice` is sent to other processes behind it, in a transaction of its own for which nobody waits.
        """
        connection, pipeline = self._connection, self._pipeline
        assert connection is not None and pipeline is not None
        try:
            answer = pipeline.send(sql, params)
            end = pipeline.send_sync()
            if notice is not None:
                pipeline.send(NOTIFY_BEHIND, [CHANNEL, notice])
                pipeline.send_sync()
            await exchange(connection, pipeline, end)
        except BaseException:
            # Also if the caller gave up: whatever the server still answers must not reach the next one.
            connection.close()
            raise
        if end.error is not None:
            raise end.error
        return answer.fetchone()

    async def insert(self, verb: CoalescedInsert[A, Any], call: A, clock: Clock) -> float | None:
        """Inserts the row of a call, and says how many seconds that took; None if it did not, or nobody knows: a writer
        runs the call then, and says why."""
        if self.reserve() is None:
            return None
        try:
            began = clock.monotonic()
            params = {"entries": verb.rows([call]), "now": clock.now()}
            row = await self.execute(*bound(f"{verb.sql}{INSERTED}", params))
            return None if row is None else clock.monotonic() - began
        except psycopg.Error:
            return None
        finally:
            self.release()

    def _connect(self) -> None:
        connection = None
        with contextlib.suppress(psycopg.Error):  # the writers find out, and say so to their callers
            connection = connect(self._url)
        with self._in_use:
            self._is_connecting = False
            if connection is not None and connection.is_pooled:
                self._is_closed = True  # a pooled session has our settings only within a transaction
            if connection is not None and self._is_closed:
                connection.close()
            elif connection is not None:
                self._connection, self._pipeline = connection, StatementPipeline(connection).__enter__()

    def close(self) -> None:
        """Ends the connection; one in use is ended by its user."""
        self._is_closed = True
        if self._in_use.acquire(blocking=False):
            self.release()


async def exchange(connection: StoreConnection, pipeline: StatementPipeline, end: Answer) -> None:
    """Sends what is to be sent and waits until `end` is answered."""
    loop, descriptor = asyncio.get_running_loop(), connection.fileno()
    done: asyncio.Future[None] = loop.create_future()

    def go_on() -> None:
        if done.done():
            return
        try:
            if not pipeline.flush():
                loop.remove_writer(descriptor)
            connection.pgconn.consume_input()
            if pipeline.receive(end):
                done.set_result(None)
        except psycopg.Error as error:
            done.set_exception(error)

    loop.add_reader(descriptor, go_on)
    try:
        if pipeline.flush():
            loop.add_writer(descriptor, go_on)
        await done
    finally:
        loop.remove_reader(descriptor)
        loop.remove_writer(descriptor)
