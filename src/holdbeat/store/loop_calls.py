"""LoopCalls: what the tasks of one event loop write at the same time, handed to the engine together.

Guards the price of a commit where many tasks write, as under a busy API. A call that comes while others of the loop
are under way waits until they are answered, or until as many wait as are worth a commit of their own, so that the
engine's thread is woken once for all of them and shares one commit among them; but not for long, because one that is
stuck must not hold up the others. A call that comes alone is handed over at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdbeat.store.work import Work

HALVED_FROM = 48
"""So many calls are handed over in two parts: the loop answers the first while the engine has the second."""
HOLD_S = 0.005
"""How long a call waits for those under way."""


class LoopCalls:
    """The calls of one event loop; used by its thread alone."""

    __slots__ = ("_enough", "_gathered", "_hand_over", "_last_count", "loop", "under_way")

    def __init__(self, loop: asyncio.AbstractEventLoop, hand_over: Callable[[list[Work]], None], enough: int) -> None:
        """`enough` calls wait for nothing: the engine commits them while the loop serves others."""
        self.loop = loop
        self._hand_over = hand_over
        self._enough = enough
        self._gathered: list[Work] = []
        self._last_count = 0
        """How many calls were last handed over together."""
        self.under_way = 0
        """How many calls of the loop wait for their answers."""

    @property
    def is_alone(self) -> bool:
        """Whether the next call has probably no others to share a commit with."""
        return not self.under_way and self._last_count <= 1

    def put(self, work: Work) -> None:
        """Has a call handed over, now or later; `answered` must follow."""
        gathered, is_alone = self._gathered, self.is_alone
        gathered.append(work)
        self.under_way += 1
        if is_alone or len(gathered) >= self._enough:
            self._flush()
        elif self.under_way == 1:
            self.loop.call_soon(self._flush)
        elif len(gathered) == 1:
            self.loop.call_later(HOLD_S, self._flush)

    def answered(self) -> None:
        """A call has its answer, or its caller has given up."""
        self.under_way -= 1
        if self.under_way <= len(self._gathered):
            self._flush()

    def _flush(self) -> None:
        gathered = self._gathered
        if not gathered:
            return
        count = len(gathered)
        if count >= HALVED_FROM and self.under_way <= count:
            count //= 2
            self.loop.call_later(HOLD_S, self._flush)
        self._gathered = gathered[count:]
        self._last_count = count
        self._hand_over(gathered[:count])
