"""LoopCalls: what the tasks of one event loop write at the same time, handed to the engine in batches.

Guards the price of a commit where many tasks write, as under a busy API or in many handlers with steps. A call that
comes alone is handed over at once. One that comes while a batch is under way waits until that is answered, or until as
many wait as are worth a commit of their own; but not for long, because a batch that is stuck must not hold up the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdbeat.store.work import Work

if TYPE_CHECKING:
    import asyncio


class LoopCalls:
    """The calls of one event loop; used by its thread alone."""

    at_once = 1
    """How many batches may be under way before calls wait."""
    hold_s: float | None = 0.005
    """How long a call waits for those under way; None for as long as they take."""
    halved_from: int | None = 48
    """From this many calls on, two batches are made if nothing is under way: the loop continues with the answers of the
    first while the engine runs the second."""
    waits_for_loop = False
    """Whether a batch waits until the loop has nothing else to do. An engine's thread needs the interpreter for each of
    its statements, and to take it from a busy loop costs both more than the batch itself."""
    is_answered_whole = False
    """Whether the calls of a batch get their answers together, and `answered` tells of the batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hand_over: Callable[[list[Work]], None], enough: int) -> None:
        """From `enough` calls on, a batch is handed over at once."""
        self.loop = loop
        self._hand_over = hand_over
        self._enough = enough
        self._ready: Any = getattr(loop, "_ready", ())
        """What asyncio's own loops will run next. Of any other loop nobody knows it."""
        self._check_is_scheduled = False
        self._gathered: list[Work] = []
        self._last_count = 0
        """How many calls were last handed over together."""
        self._under_way = 0
        """How many answers are to come: of calls, or of whole batches."""

    @property
    def is_alone(self) -> bool:
        """Whether the next call has probably no others to share a commit with."""
        return not self._under_way and not self._gathered and self._last_count <= 1

    def put(self, work: Work) -> None:
        """Hands a call over, now or later; `answered` must follow."""
        is_alone, gathered = self.is_alone, self._gathered
        gathered.append(work)
        if is_alone or len(gathered) >= self._enough:
            self._flush()
        elif len(gathered) == 1:
            if self._under_way < self.at_once:
                self._check_soon()
            if self._under_way >= self.at_once or self.waits_for_loop:
                self._hold()

    def give_up(self, work: Work) -> None:
        """`answered` for a call whose caller no longer waits."""
        if work in self._gathered:
            self._gathered.remove(work)
        else:
            self.answered()

    def answered(self) -> None:
        """A call has its answer, or a batch where that is answered whole."""
        self._under_way -= 1
        if not self.waits_for_loop:
            self._flush_if_free()
        elif self._gathered:
            self._check_soon()

    def _check_soon(self) -> None:
        """Checks in the next iteration of the loop. Only one check at once: two would each count as other work."""
        if not self._check_is_scheduled:
            self._check_is_scheduled = True
            self.loop.call_soon(self._check)

    def _check(self) -> None:
        self._check_is_scheduled = False
        if self.waits_for_loop and self._ready and self._gathered:
            self._check_soon()
        else:
            self._flush_if_free()

    def _flush_if_free(self) -> None:
        if self._under_way < self.at_once:
            self._flush()

    def _hold(self) -> None:
        if self.hold_s is not None:
            self.loop.call_later(self.hold_s, self._flush_held, self._gathered)

    def _flush_held(self, held: list[Work]) -> None:
        if self._gathered is held:
            self._flush()

    def _flush(self) -> None:
        works, self._gathered = self._gathered, []
        count = len(works)
        if self.halved_from is not None and count >= self.halved_from and not self._under_way:
            count //= 2
            works, self._gathered = works[:count], works[count:]
        if not works:
            return
        self._last_count = count
        self._under_way += 1 if self.is_answered_whole else count
        self._hand_over(works)
        if self._gathered:
            if self._under_way < self.at_once:
                self._flush()
            else:
                self._hold()
