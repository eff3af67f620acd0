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
from holdbeat.engine.service import Service
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.recovery.prune import forget_files, known_runs, noted_files, prune

log = logging.getLogger("holdbeat.engine")

POLL_S = 60.0
BATCH = 200
SWEEP_EVERY_S = 3600.0
"""How often it looks for folders of runs that the store does not know."""
ORPHAN_AFTER_S = 86_400.0
"""How long nothing has been written to such a folder when it is removed."""


class Retention(Service):
    name: ClassVar[str] = "retention"

    def __init__(self, store: PersistenceAdapter, retention_days: float, own_folder: Path | None = None) -> None:
        """`own_folder` has the artifacts of this store and of no other, so that strays in it can be removed."""
        super().__init__(store, POLL_S)
        self._retention_days = retention_days
        self._own_folder = own_folder
        self._swept_at: float | None = None

    async def step(self) -> int:
        """Takes away one batch after the other until nothing is old enough; 0 days keeps everything."""
        if self._retention_days <= 0:
            return 0
        for note, paths in await self.store.read(noted_files):
            await self._delete(note, paths)
        before = self.store.clock.now() - timedelta(days=self._retention_days)
        total = 0
        while not self._stopping:
            gone = await self.store.write(prune, before, BATCH)
            if gone.note is not None:
                await self._delete(gone.note, gone.paths)
            total += gone.rows
            if not gone.rows:
                break
        if total:
            log.info("retention took away %d rows", total)
        await self._sweep()
        return total

    async def _sweep(self) -> None:
        """Removes folders of runs that died after they wrote a file and before the store knew of it."""
        now = self.store.clock.monotonic()
        if self._own_folder is None or (self._swept_at is not None and now - self._swept_at < SWEEP_EVERY_S):
            return
        self._swept_at = now
        before = self.store.clock.now().timestamp() - ORPHAN_AFTER_S
        folders = await asyncio.to_thread(_old_folders, self._own_folder, before)
        for start in range(0, len(folders), BATCH):
            batch = folders[start : start + BATCH]
            known = await self.store.read(known_runs, [folder.name for folder in batch])
            for folder in batch:
                if folder.name not in known:
                    log.info("retention removed the folder %s of a run that the store does not know", folder)
                    await asyncio.to_thread(shutil.rmtree, folder, True)

    async def _delete(self, note: str, paths: list[str]) -> None:
        if await asyncio.to_thread(_remove, paths):
            await self.store.write(forget_files, note)


def _old_folders(folder: Path, before: float) -> list[Path]:
    try:
        return [one for one in folder.iterdir() if is_id(one.name) and one.is_dir() and one.stat().st_mtime < before]
    except OSError:
        return []


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
