"""LogWatch: warns of a store whose write-ahead log grows because somebody reads without end."""

from __future__ import annotations

import asyncio
import logging
from typing import ClassVar

from holdbeat.engine.service import Service
from holdbeat.store.adapter import PersistenceAdapter

log = logging.getLogger("holdbeat.engine")

POLL_S = 10.0
AGAIN_S = 300.0
"""How long until the same trouble is told again."""


class LogWatch(Service):
    name: ClassVar[str] = "log-watch"

    def __init__(self, store: PersistenceAdapter) -> None:
        super().__init__(store, POLL_S)
        self._told_at: float | None = None

    async def step(self) -> str | None:
        trouble = await asyncio.to_thread(self.store.log_trouble)
        now = self.store.clock.monotonic()
        if trouble is None:
            self._told_at = None
        elif self._told_at is None or now - self._told_at >= AGAIN_S:
            self._told_at = now
            log.warning("%s", trouble)
        return trouble
