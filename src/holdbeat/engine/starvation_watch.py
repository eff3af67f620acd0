"""StarvationWatch: tells when direct requests leave the queue no slot for long (LIM-08)."""

from __future__ import annotations

import logging
from typing import ClassVar

from holdbeat.engine.service import Service
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.starvation import is_news, note_starvation

log = logging.getLogger("holdbeat.engine")

POLL_S = 10.0


class StarvationWatch(Service):
    name: ClassVar[str] = "starvation-watch"

    def __init__(self, store: PersistenceAdapter, starved_s: float) -> None:
        super().__init__(store, min(POLL_S, max(0.2, starved_s / 4)))
        self._starved_s = starved_s

    async def step(self) -> int:
        """Looks, and writes only what is new; returns how many limits began to starve the queue."""
        if not await self.store.read(is_news, self._starved_s):
            return 0
        told = await self.store.write(note_starvation, self._starved_s)
        if told:
            log.warning("direct requests have left the queue no slot for %g s", self._starved_s)
        return told
