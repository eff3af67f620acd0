"""SlotGranter: hands out free slots where no worker does it."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from holdbeat.domain.errors import HoldbeatError
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.held_slots import grant_held
from holdbeat.store.topics import Topic

log = logging.getLogger("holdbeat.engine")

POLL_S = 0.5


class SlotGranter:
    """Gives free slots to reservations that need no worker, while a caller here waits and no worker passes one on."""

    def __init__(self, store: PersistenceAdapter) -> None:
        self._store = store
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._waiting += 1
        if self._task is None:
            self._task = asyncio.create_task(self._grant(), name="holdbeat-slot-granter")

    def __exit__(self, *_: object) -> None:
        self._waiting -= 1
        if not self._waiting and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _grant(self) -> None:
        woken = asyncio.Event()
        unsubscribe = self._store.on_topics(asyncio.get_running_loop(), {Topic.SLOTS}, woken.set)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await woken.wait()
                woken.clear()
                try:
                    await self._store.write(grant_held)
                except HoldbeatError as error:
                    log.warning("free slots cannot be handed out just now: %s", error)
        finally:
            unsubscribe()
