"""Rows that tasks of an event loop insert into PostgreSQL: one statement for all of them, sent by the loop itself."""

from __future__ import annotations

import asyncio
from functools import partial

from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.loop_inserts import A, InsertBatch, LoopInserts, T
from holdbeat.store.postgres.calls import BATCH_WAIT_S
from holdbeat.store.postgres.loop_link import LoopLink
from holdbeat.store.postgres.pipeline import Answer
from holdbeat.store.postgres.transaction import INSERTED, array, for_table
from holdbeat.store.work import CoalescedInsert


class PostgresLoopInserts(LoopInserts[A, T]):
    """While there is no connection for the loop, or another call uses it, calls go to the writers."""

    at_once = 2
    wait_s = BATCH_WAIT_S

    def __init__(
        self,
        store: PersistenceAdapter,
        loop: asyncio.AbstractEventLoop,
        verb: CoalescedInsert[A, T],
        link: LoopLink,
    ) -> None:
        super().__init__(store, loop, verb)
        self._link = link
        self._in_use = 0
        """How many batches are on the connection."""
        self._sql, self._single_sql, self._names = for_table(f"{verb.sql}{INSERTED}")

    def _begin(self, batch: InsertBatch[A, T], *, may_wait: bool) -> None:
        if not self._in_use and self._link.reserve() is None:
            self._answer(batch, None)
            return
        self._in_use += 1
        try:
            rows, now = self.verb.rows(batch.calls), self.store.clock.now()
            if len(rows) == 1:
                sql, values = self._single_sql, rows[0]
            else:
                sql, values = self._sql, tuple([array(column) for column in zip(*rows, strict=True)])
            params = dict(zip(self._names, values, strict=True), now=now)
        except Exception:
            self._ended(batch, None)
            return
        self._link.begin(
            self.loop, sql, params, partial(self._ended, batch), idle_loop=self.idle_loop if may_wait else None
        )

    def _ended(self, batch: InsertBatch[A, T], answer: Answer | Exception | None) -> None:
        self._in_use -= 1
        if not self._in_use:
            self._link.release()
        # One row for each that was inserted. If that was not all, or nobody knows, a writer says what became of them.
        is_done = isinstance(answer, Answer) and len(answer.rows) == len(batch.calls)
        self._answer(batch, [self.verb.answer(call) for call in batch.calls] if is_done else None)

    def close(self) -> None:
        """A connection on which a closed loop has left something cannot be used any more."""
        if self._in_use and self.loop.is_closed():
            self._link.abandon()
