"""LoopInserts: the rows that tasks of one event loop insert, those of a batch by one call.

Guards the price of a step. A call of its own for each of many tasks wakes the engine's threads as often, and makes and
answers as many objects; here a batch of them is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdbeat.domain.errors import StoreDown, StoreRefused
from holdbeat.store.idle_loop import IdleLoop
from holdbeat.store.loop_calls import LoopCalls
from holdbeat.store.work import CoalescedInsert, Work, set_results

if TYPE_CHECKING:
    import asyncio

    from holdbeat.store.adapter import PersistenceAdapter

A = TypeVar("A")
T = TypeVar("T")

MOST_TOGETHER = 512
"""Calls of one batch at the most, so that the first of them does not wait for long."""


class LoopInserts(LoopCalls, ABC, Generic[A, T]):
    """Calls of one verb from one event loop."""

    is_answered_whole = True

    def __init__(self, store: PersistenceAdapter, loop: asyncio.AbstractEventLoop, verb: CoalescedInsert[A, T]) -> None:
        super().__init__(loop, self._begin, MOST_TOGETHER)
        self.store = store
        self.verb = verb
        self._idle_loop = IdleLoop(loop)

    @abstractmethod
    def close(self) -> None:
        """Closes it; called from any thread when no batch is under way."""

    @abstractmethod
    def _begin(self, works: list[Work]) -> None:
        """Has the rows inserted; `_answer` follows, in the loop. If `_may_wait`, it may wait in the loop's place."""

    def _may_wait(self, works: list[Work]) -> bool:
        return len(works) == 1 and self._idle_loop.is_idle

    def _answer(self, works: list[Work], results: Sequence[Any] | Exception | None) -> None:
        """Sets the results. With None nobody knows, and each call is made again on its own; so is one of many that
        have failed together."""
        if isinstance(results, Exception):
            is_shared = len(works) > 1 and not isinstance(results, StoreDown | StoreRefused)
            results = None if is_shared else [results] * len(works)
        if results is not None:
            set_results(zip([work.waiter for work in works], results, strict=True))
        else:
            for work in works:
                if work.begin():
                    self.store.submit(work, read_only=False)
        self._under_way -= 1
        if self._gathered:
            # After the tasks that are answered now: each may add a row, and two halves would remain two commits.
            self.loop.call_soon(self._flush_if_free)
