"""An event loop with virtual time in which several simulated processes take turns.

A callback belongs to the process in whose context it was scheduled. Within a process callbacks run in order; between
processes a seeded choice decides who goes next. Callbacks of a process that is frozen wait, those of a dead one are
dropped: so a kill takes effect between any two steps of any of its tasks, and none of its code runs afterwards.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import random
from asyncio import events
from collections import deque
from collections.abc import Callable
from typing import Any


class Owner:
    """Who callbacks belong to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_frozen = False
        self.ready: deque[asyncio.Handle] = deque()
        self.context = contextvars.copy_context()
        self.context.run(OWNER.set, self)


OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("simulated_process", default=None)


_Loop: Any = asyncio.AbstractEventLoop
"""Untyped: what is not needed here is not there."""


class VirtualLoop(_Loop):  # type: ignore[misc]
    """Only what tasks, futures, timeouts and events need. Nothing of it waits for real time."""

    def __init__(self, choice: random.Random) -> None:
        self._choice = choice
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self.nobody = Owner("nobody")
        self.owners: list[Owner] = [self.nobody]
        self.steps = 0
        self.errors: list[str] = []
        """What nobody caught: the simulated machine reports it with the verdict."""
        self.is_over = False

    def add(self, owner: Owner) -> None:
        self.owners.append(owner)

    # --- what asyncio calls --------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._put(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        handle._scheduled = True  # type: ignore[attr-defined]
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.is_over

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_over and "was destroyed" not in context.get("message", ""):
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is left out when its time comes."""

    # --- turns -------------------------------------------------------------------------------------------------

    def _put(self, handle: Any) -> None:
        owner = handle._context.get(OWNER) or self.nobody
        if not owner.is_dead:
            owner.ready.append(handle)

    def run_until(self, until: float) -> None:
        """Lets everything happen that happens until then."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while self._step(until):
                self.steps += 1
        finally:
            events._set_running_loop(before)

    def _step(self, until: float) -> bool:
        timers = self._timers
        while timers and (timers[0][0] <= self._now or timers[0][2].cancelled()):
            timer = heapq.heappop(timers)[2]
            if not timer.cancelled():
                self._put(timer)
        runnable = [owner for owner in self.owners if owner.ready and not owner.is_frozen]
        if runnable:
            owner = runnable[0] if len(runnable) == 1 else runnable[int(self._choice.random() * len(runnable))]
            handle = owner.ready.popleft()
            if not handle.cancelled():
                handle._run()
            return True
        if not timers or timers[0][0] > until:
            self._now = max(self._now, until)
            return False
        self._now = timers[0][0]
        return True

    def kill(self, owner: Owner) -> None:
        owner.is_dead = True
        owner.ready.clear()
        self.owners.remove(owner)
