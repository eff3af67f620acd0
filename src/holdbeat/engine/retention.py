"""Retention: takes away what ended long ago, in small batches (QUE-07)."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from holdbeat.domain.ids import is_id
from holdbeat.engine.artifact_sweep import ArtifactSweep
from holdbeat.engine.service import Service
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.recovery.prune import forget_files, noted_files, prune

log = logging.getLogger("holdbeat.engine")

POLL_S = 60.0
BATCH = 200


class Retention(Service):
    name: ClassVar[str] = "retention"

    def __init__(
        self, store: PersistenceAdapter, retention_days: float, artifact_sweep: ArtifactSweep | None = None
    ) -> None:
        super().__init__(store, POLL_S)
        self._retention_days = retention_days
        self._artifact_sweep = artifact_sweep

    async def step(self) -> int:
        """Takes away one batch after the other until nothing is old enough; 0 days keeps everything."""
        if self._retention_days <= 0:
            return 0
        for note, paths in await self.store.read(noted_files):
            await self._delete(note, paths)
        # Before retention deletes runs: their rows show which files of a shared folder belong to this store.
        if self._artifact_sweep is not None:
            await self._artifact_sweep.step()
        before = self.store.clock.now() - timedelta(days=self._retention_days)
        total = 0
        while not self._stopping:
            pruned = await self.store.write(prune, before, BATCH)
            if pruned.note is not None:
                await self._delete(pruned.note, pruned.paths)
            total += pruned.rows
            if not pruned.rows:
                break
        if total:
            log.info("retention has deleted rows: %d", total)
        return total

    async def _delete(self, note: str, paths: list[str]) -> None:
        if await asyncio.to_thread(_remove, paths):
            await self.store.write(forget_files, note)


def _remove(paths: Iterable[str]) -> bool:
    """Removes files of artifacts, and the folder of a run with all that a crash may have left there."""
    are_gone = True
    for path in paths:
        file = Path(path)
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the artifact %s could not be deleted, and will be tried again: %s", file, error)
            are_gone = False
        if is_id(file.parent.name):
            shutil.rmtree(file.parent, ignore_errors=True)
    return are_gone
