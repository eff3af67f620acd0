"""An event loop in a thread of its own.

Guards that the server answers while the worker does not: an async handler that blocks blocks the loop it runs in, and
that must not be the one that says `/healthz`, shows the queue or takes the cancel.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine there and returns its result here."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def call(self, action: Callable[[], None]) -> None:
        """Has something done there soon."""
        self._loop.call_soon_threadsafe(action)

    def close(self) -> None:
        """Ends the loop once what it is at is done."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._loop.close()
