"""IdleLoop: waits for an answer in the place of an event loop that has nothing else to do.

A task that awaits an answer is suspended, the loop asks the kernel what is ready, and runs a callback and the task in
its next two iterations: that takes a tenth of a commit. Where no callback is ready and no timer due, the loop would
only wait, so the task waits in its place. Nothing is held up by that: the wait ends when a file that the loop watches
is ready, as it is when another thread calls the loop, and before the next timer.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

LONGEST_MS = 1
"""The longest wait in the loop's place. A commit that takes longer is awaited."""


class IdleLoop:
    """Used in the thread of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # What asyncio's own loops have to do. In the place of any other loop nobody waits.
        self._ready: Any = getattr(loop, "_ready", None)
        self._timers: Any = getattr(loop, "_scheduled", None)
        self._selector: Any = getattr(loop, "_selector", None)
        self._is_known = None not in (self._ready, self._timers) and hasattr(self._selector, "fileno")
        self._poller = select.poll()
        self._descriptor: int | None = None
        """What the poller waits for beside the loop's own files."""

    @property
    def is_idle(self) -> bool:
        """Whether the current task is all that the loop has to do, and will be for as long as a wait takes."""
        if self._ready or not self._is_known:
            return False
        timers = self._timers
        return not timers or timers[0].when() > self.loop.time() + LONGEST_MS / 1000

    def poll(self, descriptor: int) -> bool:
        """Waits until the descriptor can be read; False if the loop has something to do before, or it takes long."""
        if descriptor != self._descriptor:
            self._poller = select.poll()
            self._poller.register(descriptor, select.POLLIN)
            self._poller.register(self._selector.fileno(), select.POLLIN)
            self._descriptor = descriptor
        return descriptor in dict(self._poller.poll(LONGEST_MS))
