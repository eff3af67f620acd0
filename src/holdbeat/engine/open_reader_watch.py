"""OpenReaderWatch: warns of a foreign transaction that stays open and costs the store more and more."""

from __future__ import annotations

import logging
from typing import ClassVar

from holdbeat.domain.attention import OpenReader
from holdbeat.engine.service import Service
from holdbeat.store.adapter import PersistenceAdapter

log = logging.getLogger("holdbeat.engine")

POLL_S = 10.0
AGAIN_S = 300.0
"""How long until the same warning is logged again."""


class OpenReaderWatch(Service):
    name: ClassVar[str] = "open-reader-watch"

    def __init__(self, store: PersistenceAdapter) -> None:
        super().__init__(store, POLL_S)
        self._warned_at: float | None = None

    async def step(self) -> OpenReader | None:
        reader = await self.store.read(lambda tx: tx.open_reader())
        now = self.store.clock.monotonic()
        if reader is None:
            self._warned_at = None
        elif self._warned_at is None or now - self._warned_at >= AGAIN_S:
            self._warned_at = now
            log.warning("%s %s", reader.detail, reader.remedy)
        return reader
