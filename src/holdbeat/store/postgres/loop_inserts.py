"""Rows that tasks of an event loop insert into PostgreSQL: one statement for all of them, sent by the loop itself."""

from __future__ import annotations

import asyncio
from functools import partial

from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.loop_inserts import A, LoopInserts, T
from holdbeat.store.postgres.calls import BATCH_WAIT_S
from holdbeat.store.postgres.loop_link import LoopLink
from holdbeat.store.postgres.pipeline import Answer
from holdbeat.store.postgres.transaction import INSERTED, array, for_table
from holdbeat.store.work import CoalescedInsert, Work


class PostgresLoopInserts(LoopInserts[A, T]):
    """While there is no connection for the loop, or another call uses it, calls go to the writers."""

    at_once = 2
    hold_s = BATCH_WAIT_S
    halved_from = 32

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

    def _begin(self, works: list[Work]) -> None:
        # A batch that was held for too long does not wait for the lock on the connection.
        if self._in_use == self.at_once or (not self._in_use and self._link.reserve() is None):
            self._answer(works, None)
            return
        self._in_use += 1
        calls = [work.args[0] for work in works]
        try:
            rows, now = self.verb.rows(calls), self.store.clock.now()
            if len(rows) == 1:
                sql, values = self._single_sql, rows[0]
            else:
                sql, values = self._sql, tuple([array(column) for column in zip(*rows, strict=True)])
            params = dict(zip(self._names, values, strict=True), now=now)
        except Exception:
            self._ended(works, calls, None)
            return
        idle_loop = self._idle_loop if self._may_wait(works) else None
        self._link.begin(self.loop, sql, params, partial(self._ended, works, calls), idle_loop=idle_loop)

    def _ended(self, works: list[Work], calls: list[A], answer: Answer | Exception | None) -> None:
        self._in_use -= 1
        if not self._in_use:
            self._link.release()
        # One row for each insert. If some are missing, or the answer is lost, a writer finds out what was stored.
        is_done = isinstance(answer, Answer) and len(answer.rows) == len(calls)
        self._answer(works, [self.verb.answer(call) for call in calls] if is_done else None)

    def close(self) -> None:
        """Drops a connection on which a closed loop has left unanswered statements."""
        if self._in_use and self.loop.is_closed():
            self._link.abandon()
