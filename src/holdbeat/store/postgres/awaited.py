"""A caller's AsyncConnection for verbs, which are plain functions: they run in a thread, its statements in its loop."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.string import TextLoader

from holdbeat.store.postgres.transaction import ColumnTypes, PostgresTransaction
from holdbeat.store.transaction import Row, StoreTerms


class AwaitedConnection:
    """An AsyncConnection and the loop in which it is used. The loop must not be the thread that calls `send`."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], loop: asyncio.AbstractEventLoop) -> None:
        self.connection = connection
        self._loop = loop

    def send(self, sql: str, params: Any) -> Answer:
        return asyncio.run_coroutine_threadsafe(self._send(sql, params), self._loop).result()

    async def _send(self, sql: str, params: Any) -> Answer:
        cursor = psycopg.AsyncCursor(self.connection, row_factory=tuple_row)
        cursor.adapters.register_loader("json", TextLoader)
        await cursor.execute(sql, params, prepare=False)
        return Answer(await cursor.fetchall() if cursor.description else [])


class Answer:
    """The rows of a statement that has been executed, in the form of a cursor."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def fetchall(self) -> list[Row]:
        return self._rows

    def fetchone(self) -> Row | None:
        return self._rows[0] if self._rows else None


class AwaitedPostgresTransaction(PostgresTransaction):
    """Inside the transaction of a caller's AsyncConnection."""

    def __init__(self, awaited: AwaitedConnection, now: datetime, terms: StoreTerms, types: ColumnTypes) -> None:
        super().__init__(awaited.connection, now, terms, types)  # type: ignore[arg-type]
        self._awaited = awaited

    def _send(self, sql: str, params: dict[str, Any] | list[Any] | None) -> Any:
        return self._awaited.send(sql, params)
