"""A Service: something that is done again and again until it is told to stop.

The loop only waits and catches; what is done is in `step()`, which tests call by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from holdbeat.domain.errors import StoreRefused, Unavailable
from holdbeat.domain.worker import Worker
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.topics import Topic

log = logging.getLogger("holdbeat.engine")

FAILED_PAUSE_S = 1.0


class Service(ABC):
    """Starts, steps at an interval or when woken, and stops after the step at hand."""

    name: ClassVar[str]
    topics: ClassVar[frozenset[Topic]] = frozenset()
    """Topics of the store that make it step at once; a reconnect does so too."""
    watches_clock: ClassVar[bool] = False
    """Whether it looks at the clocks itself, so that its process needs no other ClockWatch."""

    def __init__(self, store: PersistenceAdapter, interval_s: float) -> None:
        self.store = store
        self.interval_s = interval_s
        self.on_refused: Callable[[StoreRefused], None] | None = None
        """Called when the store must not be used any more."""
        self.worker: Worker | None = None
        """The process that runs it."""
        self._woken = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    @abstractmethod
    async def step(self) -> Any:
        """Does the work that is due now, and returns what it did."""

    def wake(self) -> None:
        self._woken.set()

    async def start(self) -> None:
        if self._task is not None:
            return
        self._stopping = False
        if self.topics:
            self._unsubscribe = self.store.on_topics(asyncio.get_running_loop(), self.topics, self.wake)
        self._task = asyncio.create_task(self._loop(), name=f"holdbeat-{self.name}")

    async def stop(self) -> None:
        """Ends the loop after the step at hand. Safe to call twice, and before start."""
        self._stopping = True
        self._unsubscribe()
        self.wake()
        task, self._task = self._task, None
        if task is not None:
            await task

    async def _loop(self) -> None:
        while not self._stopping:
            pause_s = self.interval_s
            try:
                await self.step()
            except StoreRefused as error:
                log.critical("%s stops: %s", self.name, error)
                if self.on_refused is not None:
                    self.on_refused(error)
                return
            except Unavailable as error:
                log.warning("%s: %s", self.name, error)
                pause_s = max(pause_s, FAILED_PAUSE_S)
            except Exception:
                log.exception("%s failed; it goes on", self.name)
                pause_s = max(pause_s, FAILED_PAUSE_S)
            if not self._stopping:
                await self._rest(pause_s)

    async def _rest(self, pause_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
        self._woken.clear()
