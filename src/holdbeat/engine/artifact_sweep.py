"""ArtifactSweep: removes artifact files that have no row, because a worker died before it could write one.

Guards QUE-07 against a live writer: a file gets its row while its run has a lease, so a file that was there before the
store said that its run has ended will never get one. A folder that the settings name may have artifacts of other stores
too: there only the folders of runs that this store knows are touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from pathlib import Path

from holdbeat.domain.ids import is_id
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.recovery.prune import FilesOnRecord, files_on_record

log = logging.getLogger("holdbeat.engine")

BATCH = 200
EVERY_S = 3600.0
OLD_AFTER_S = 86_400.0
"""The folder of a run is checked when nothing has been written to it for this long."""


class ArtifactSweep:
    def __init__(self, store: PersistenceAdapter, folder: Path, *, is_own: bool) -> None:
        """`is_own` says that the folder has the artifacts of this store and of no other."""
        self._store = store
        self._folder = folder
        self._is_own = is_own
        self._swept_at: float | None = None
        self._looked_until = 0.0
        """Folders that changed before this time were checked: all their files have a row."""

    async def step(self) -> None:
        """Looks, once an hour, at the folders of runs to which nothing has been written for a day."""
        now = self._store.clock.monotonic()
        if self._swept_at is not None and now - self._swept_at < EVERY_S:
            return
        self._swept_at = now
        until = self._store.clock.now().timestamp() - OLD_AFTER_S
        try:
            folders = await asyncio.to_thread(_folders, self._folder, self._looked_until, until)
        except OSError as error:
            log.warning("the folder of artifacts %s cannot be looked at: %s", self._folder, error)
            return
        running = []
        for start in range(0, len(folders), BATCH):
            batch = folders[start : start + BATCH]
            # In this order: a file that gets its row in between is not taken for one without.
            files = await asyncio.to_thread(_files_in, [folder for folder, _ in batch])
            runs = await self._store.read(files_on_record, [folder.name for folder, _ in batch])
            await asyncio.to_thread(self._remove, files, runs)
            running += [changed_at for folder, changed_at in batch if folder.name in runs.running]
        self._looked_until = min([until, *running])

    def _remove(self, files: list[tuple[Path, list[Path]]], runs: FilesOnRecord) -> None:
        for folder, entries in files:
            if folder.name in runs.running:
                continue
            on_record = runs.ended.get(folder.name)
            if on_record is None:
                if self._is_own:
                    log.info("retention removed the folder %s of a run that the store does not know", folder)
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            for file in entries:
                if file.name not in on_record:
                    log.info("retention removed the file %s, which no artifact of its run is", file)
                    with contextlib.suppress(OSError):
                        file.unlink()
            if not on_record:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _folders(folder: Path, since: float, until: float) -> list[tuple[Path, float]]:
    """The folders of runs that changed last in this time, and when."""
    folders = []
    for entry in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if is_id(entry.name) and entry.is_dir() and since <= (changed_at := entry.stat().st_mtime) < until:
                folders.append((entry, changed_at))
    return folders


def _files_in(folders: list[Path]) -> list[tuple[Path, list[Path]]]:
    files = []
    for folder in folders:
        with contextlib.suppress(OSError):
            files.append((folder, [entry for entry in folder.iterdir() if entry.is_file()]))
    return files
