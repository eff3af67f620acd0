"""LoopInserts: the rows that tasks of one event loop insert, those of one turn of the loop together.

Guards the price of a step. A call of its own for each of many tasks wakes the engine's threads as often, and makes and
answers as many objects; here a batch of them is one. A task that is alone does not wait for others: its call is handed
over at once, unless the last ones came together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from holdbeat.domain.clock import SystemClock
from holdbeat.domain.errors import StoreDown, StoreRefused
from holdbeat.store.idle_loop import IdleLoop
from holdbeat.store.work import CoalescedInsert, Work, set_results

if TYPE_CHECKING:
    import asyncio

    from holdbeat.store.adapter import PersistenceAdapter

A = TypeVar("A")
T = TypeVar("T")

MOST_TOGETHER = 512
"""Calls of one batch at the most, so that the first of them does not wait for long."""

HALVED_FROM = 32
"""Calls that are two batches where two may be under way: the loop goes on with the first while the engine has the
second."""

monotonic = SystemClock().monotonic


class InsertBatch(Generic[A, T]):
    """Calls that go together, and who waits for each."""

    __slots__ = ("began", "calls", "waiters")

    def __init__(self, calls: list[A], waiters: list[asyncio.Future[T]], began: list[float]) -> None:
        self.calls = calls
        self.waiters = waiters
        self.began = began
        """When each was made, if somebody wants to know."""

    def without(self, count: int) -> InsertBatch[A, T]:
        """Takes all but the first `count` calls out, into a batch of their own."""
        rest = InsertBatch(self.calls[count:], self.waiters[count:], self.began[count:])
        self.calls, self.waiters, self.began = self.calls[:count], self.waiters[:count], self.began[:count]
        return rest


class LoopInserts(ABC, Generic[A, T]):
    """Calls of one verb from one event loop; used in that loop's thread alone."""

    at_once = 1
    """So many batches may be under way."""
    wait_s: float | None = None
    """How long calls wait for those, where they could go beside them: one may be stuck behind a lock."""

    def __init__(self, store: PersistenceAdapter, loop: asyncio.AbstractEventLoop, verb: CoalescedInsert[A, T]) -> None:
        self.store = store
        self.loop = loop
        self.verb = verb
        self.idle_loop = IdleLoop(loop)
        self._next: InsertBatch[A, T] | None = None
        self._is_due = False
        """Whether the next batch goes at the end of this turn of the loop."""
        self._under_way = 0
        self._last_count = 0

    def insert(self, call: A) -> asyncio.Future[T]:
        waiter: asyncio.Future[T] = self.loop.create_future()
        began = [] if self.store.timer is None else [monotonic()]
        if self._next is not None:
            self._next.calls.append(call)
            self._next.waiters.append(waiter)
            self._next.began += began
            return waiter
        batch = self._next = InsertBatch([call], [waiter], began)
        if self._under_way == self.at_once:
            if self.wait_s is not None:
                self.loop.call_later(self.wait_s, self._overtake, batch)
        elif self._under_way or self._last_count > 1:
            self._make_due()
        else:
            self._next = None
            self._hand_over(batch, may_wait=self.idle_loop.is_idle)
        return waiter

    def _make_due(self) -> None:
        self._is_due = True
        self.loop.call_soon(self._hand_over_next)

    def _hand_over_next(self) -> None:
        self._is_due = False
        while self._next is not None and self._under_way < self.at_once:
            batch, count = self._next, len(self._next.calls)
            if count >= HALVED_FROM and self._under_way + 1 < self.at_once:
                count = (count + 1) // 2
            count = min(count, MOST_TOGETHER)
            self._next = batch.without(count) if count < len(batch.calls) else None
            self._hand_over(batch)

    def _overtake(self, batch: InsertBatch[A, T]) -> None:
        if self._next is batch and self._under_way == self.at_once:
            self._next = None
            self._submit_each(batch)

    def _hand_over(self, batch: InsertBatch[A, T], *, may_wait: bool = False) -> None:
        self._last_count = len(batch.calls)
        self._under_way += 1
        self._begin(batch, may_wait=may_wait)

    @abstractmethod
    def close(self) -> None:
        """Ends it; called from any thread when nothing is under way any more."""

    @abstractmethod
    def _begin(self, batch: InsertBatch[A, T], *, may_wait: bool) -> None:
        """Has the rows inserted; `_answer` follows, in the loop. With `may_wait` it may wait in the loop's place."""

    def _answer(self, batch: InsertBatch[A, T], results: Sequence[T | Exception] | Exception | None) -> None:
        """Sets the results. With None nobody knows, and each call is made again on its own; so is one of many that
        have failed together."""
        self._under_way -= 1
        if batch.began and (timer := self.store.timer) is not None:
            now = monotonic()
            for began in batch.began:
                timer("write", now - began)
        if self._next is not None and not self._is_due:
            # After those that are answered now: they may have something to add.
            self._make_due()
        if isinstance(results, Exception):
            is_shared = len(batch.calls) > 1 and not isinstance(results, StoreDown | StoreRefused)
            results = None if is_shared else [results] * len(batch.calls)
        if results is None:
            self._submit_each(batch)
        else:
            set_results(zip(batch.waiters, results, strict=True))

    def _submit_each(self, batch: InsertBatch[A, T]) -> None:
        for call, waiter in zip(batch.calls, batch.waiters, strict=True):
            if not waiter.done():
                work = Work(self.verb, (call,), {}, self.loop)
                work.waiter = waiter
                self.store.submit(work, read_only=False)
