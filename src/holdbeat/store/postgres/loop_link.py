"""LoopLink: a connection for single statements of an event loop, used without a thread.

A call that goes through a writer's thread changes threads twice, which costs as much as a round trip. One statement at
a time is sent here; while it is under way, other calls share the writers' transactions as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import psycopg

from holdbeat.store.idle_loop import IdleLoop
from holdbeat.store.postgres.database import StoreConnection, connect
from holdbeat.store.postgres.pipeline import Answer, Params, StatementPipeline
from holdbeat.store.postgres.wakeups import CHANNEL, NOTIFY_BEHIND
from holdbeat.store.transaction import Row
from holdbeat.store.work import set_results

Ended = Callable[[Any], None]
"""Called with an Answer or an error."""


class LoopLink:
    def __init__(self, url: str) -> None:
        self._url = url
        self._in_use = threading.Lock()
        self._connection: StoreConnection | None = None
        self._pipeline: StatementPipeline | None = None
        """Of the connection, for all its life: what nobody waits for is answered before the next statement."""
        self._awaited: deque[tuple[Answer, Answer, Ended]] = deque()
        """For each statement under way: the answer that ends it, its own answer, and the callback."""
        self._idle_loop: IdleLoop | None = None
        """Of the loop that executed a statement last."""
        self._watched: tuple[asyncio.AbstractEventLoop, int] | None = None
        """The loop that watches the connection, and its descriptor."""
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
        self._in_use.release()
        # Looked at after that: `close` leaves a connection in use to its user.
        if self._is_closed:
            self.close()

    async def execute(self, sql: str, params: Params, notice: str | None = None) -> Row | None:
        """Runs a statement that commits by itself; its first row.

        `notice` is sent to other processes behind it, in a transaction of its own for which nobody waits.
        """
        loop = asyncio.get_running_loop()
        if self._idle_loop is None or self._idle_loop.loop is not loop:
            self._idle_loop = IdleLoop(loop)
        idle_loop = self._idle_loop if self._idle_loop.is_idle else None
        done: asyncio.Future[Answer] = loop.create_future()
        self.begin(loop, sql, params, lambda answer: set_results([(done, answer)]), notice=notice, idle_loop=idle_loop)
        try:
            return (await done).fetchone()
        except asyncio.CancelledError as error:
            # A late answer of the server must not reach the next statement.
            self._lose(error)
            raise

    def begin(
        self,
        loop: asyncio.AbstractEventLoop,
        sql: str,
        params: Params,
        ended: Ended,
        *,
        notice: str | None = None,
        idle_loop: IdleLoop | None = None,
    ) -> None:
        """`execute` that calls `ended` with the answer or the error, in the loop. Others may begin before that; they
        are answered in the same order. With `idle_loop` it may wait in the loop's place."""
        connection, pipeline = self._connection, self._pipeline
        assert connection is not None and pipeline is not None
        try:
            answer = pipeline.send(sql, params)
            end = pipeline.send_sync()
            if notice is not None:
                pipeline.send(NOTIFY_BEHIND, [CHANNEL, notice])
                pipeline.send_sync()
            is_sent = not pipeline.flush()
        except Exception as error:
            ended(error)
            self._lose(error)
            return
        self._awaited.append((end, answer, ended))
        if is_sent and idle_loop is not None and idle_loop.poll(connection.fileno()):
            self._receive()
        if self._awaited and self._watched is None:
            self._watched = loop, connection.fileno()
            loop.add_reader(connection.fileno(), self._receive)
        if self._awaited and not is_sent:
            loop.add_writer(connection.fileno(), self._receive)

    def _receive(self) -> None:
        """Takes the answers that have arrived, and sends on what could not be sent at once."""
        assert self._connection is not None and self._pipeline is not None
        try:
            if not self._pipeline.flush() and self._watched is not None:
                loop, descriptor = self._watched
                loop.remove_writer(descriptor)
            self._connection.pgconn.consume_input()
            while self._awaited and self._pipeline.receive(self._awaited[0][0]):
                end, answer, ended = self._awaited.popleft()
                if not self._awaited:
                    self._unwatch()
                ended(answer if end.error is None else end.error)
        except psycopg.Error as error:
            self._lose(error)

    def _unwatch(self) -> None:
        if self._watched is not None:
            (loop, descriptor), self._watched = self._watched, None
            loop.remove_reader(descriptor)
            loop.remove_writer(descriptor)

    def _lose(self, error: BaseException) -> None:
        """Ends the connection. Nobody knows what became of statements that are not answered."""
        assert self._connection is not None
        self._unwatch()
        self._connection.close()
        while self._awaited:
            _, _, ended = self._awaited.popleft()
            ended(error)

    def abandon(self) -> None:
        """Closes the connection of a caller whose loop is closed, and releases it."""
        assert self._connection is not None
        self._awaited.clear()
        self._watched = None
        self._connection.close()
        self.release()

    def _connect(self) -> None:
        connection = None
        with contextlib.suppress(psycopg.Error):  # the writers find out, and say so to their callers
            connection = connect(self._url)
        self._in_use.acquire()
        self._is_connecting = False
        if connection is not None:
            if connection.is_pooled:
                self._is_closed = True  # a pooled session has our settings only within a transaction
            try:
                self._connection, self._pipeline = connection, StatementPipeline(connection).__enter__()
            except psycopg.Error:
                connection.close()
        self.release()

    def close(self) -> None:
        """Ends the connection; one in use is ended by its user."""
        self._is_closed = True
        if self._in_use.acquire(blocking=False):
            if self._connection is not None:
                self._connection.close()
            self._in_use.release()
