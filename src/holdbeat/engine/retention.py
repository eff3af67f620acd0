"""Retention: takes away what ended long ago, in small batches (QUE-07)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from holdbeat.engine.service import Service
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.verbs.prune import prune

log = logging.getLogger("holdbeat.engine")

LOOK_S = 60.0
BATCH = 200


class Retention(Service):
    name: ClassVar[str] = "retention"

    def __init__(self, store: PersistenceAdapter, retention_days: float) -> None:
        super().__init__(store, LOOK_S)
        self._retention_days = retention_days

    async def step(self) -> int:
        """Takes away one batch after the other until nothing is old enough; 0 days keeps everything."""
        if self._retention_days <= 0:
            return 0
        before = self.store.clock.now() - timedelta(days=self._retention_days)
        total = 0
        while not self._stopping:
            gone = await self.store.write(prune, before, BATCH)
            if gone.paths:
                await asyncio.to_thread(_remove, gone.paths)
            total += gone.rows
            if not gone.rows:
                break
        if total:
            log.info("retention took away %d rows", total)
        return total


def _remove(paths: Iterable[str]) -> None:
    """Removes files of artifacts, and the folder of a run with its last one."""
    for path in paths:
        file = Path(path)
        file.unlink(missing_ok=True)
        if file.parent.is_dir() and not any(file.parent.iterdir()):
            file.parent.rmdir()
