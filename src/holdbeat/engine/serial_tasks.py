"""Many coroutines in few tasks: a task of its own costs a short handler more than its work.

A task runs coroutine after coroutine as long as none of them has to wait. The first that waits keeps the task, and the
rest go on in another one. So a coroutine sees one task through all its life, and a context that nobody else changes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextvars import Context, copy_context
from types import coroutine
from typing import Any, Generic, TypeVar

from holdbeat.domain.clock import SystemClock

A = TypeVar("A")
_Execution = Coroutine[Any, Any, None]

LONGEST_S = 0.05
"""After so long a task lets the event loop look at whatever else is ready."""

monotonic = SystemClock().monotonic


class SerialTasks(Generic[A]):
    """Executes a coroutine function for each of many arguments."""

    def __init__(self, execute: Callable[[A], _Execution]) -> None:
        self._execute = execute
        self._tasks: set[asyncio.Task[None]] = set()
        """The event loop itself does not keep tasks alive."""

    def start(self, arguments: Iterable[A]) -> None:
        """Begins soon, in the order of the arguments."""
        waiting = deque(arguments)
        if waiting:
            self._start(waiting)

    async def ended(self) -> None:
        """Waits until nothing is executed any more."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, waiting: deque[A]) -> None:
        task = asyncio.create_task(self._run(waiting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, waiting: deque[A]) -> None:
        until = monotonic() + LONGEST_S
        task = asyncio.current_task()
        assert task is not None
        while waiting:
            context = copy_context()
            execution = self._execute(waiting.popleft())
            try:
                awaited = context.run(execution.send, None)
            except StopIteration:
                # A coroutine that cancelled its own task and did not wait must not cancel the next one.
                if waiting and (monotonic() > until or task.cancelling()):
                    self._start(waiting)
                    return
            except BaseException:
                self._go_on_with(waiting)
                raise
            else:
                self._go_on_with(waiting)
                await _rest_of(execution, awaited, context)
                return

    def _go_on_with(self, waiting: deque[A]) -> None:
        if waiting:
            self._start(waiting)


@coroutine
def _rest_of(execution: _Execution, awaited: Any, context: Context) -> Generator[Any, Any, None]:
    """The rest of a coroutine that waits for `awaited`, as something to await."""
    while True:
        try:
            try:
                answer = yield awaited
            except BaseException as error:
                awaited = context.run(execution.throw, error)
            else:
                awaited = context.run(execution.send, answer)
        except StopIteration:
            return
