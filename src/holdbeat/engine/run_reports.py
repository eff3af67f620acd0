"""What handlers say while they run: progress, logs and artifacts, kept apart from the run and fenced by the lease.

Progress and log lines are gathered and written a few times a second for all runs together; before a run is settled,
what it said last is on disk. A report of a lost lease is dropped by the store, not by us (LEASE-03): so each version of
an artifact is a file of its own, and the one on record is not touched before the store has taken another.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.lease import Lease
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.run_output import (
    ArtifactEntry,
    LogEntry,
    ProgressEntry,
    append_logs,
    list_artifacts,
    progress,
    replace_artifact,
)

log = logging.getLogger("holdbeat.engine")

FLUSH_S = 0.2
IN_STORE_MAX = 10 * 1024 * 1024
"""An artifact that is kept in the database may have this many bytes."""


class RunReports:
    """Gathers the reports of all runs of this process."""

    def __init__(self, store: PersistenceAdapter, artifact_dir: Path | None) -> None:
        self.store = store
        self.artifact_dir = artifact_dir
        self._lock = threading.Lock()
        self._logs: list[LogEntry] = []
        self._progress: dict[str, ProgressEntry] = {}
        self._writing = asyncio.Lock()
        self.on_first: Callable[[], None] = lambda: None
        """Called from any thread when something waits to be written and nothing did before."""

    def of(self, lease: Lease) -> OneRunReports:
        return OneRunReports(self, lease)

    def add_log(self, entry: LogEntry) -> None:
        with self._lock:
            is_first = self.is_empty
            self._logs.append(entry)
        if is_first:
            self.on_first()

    def add_progress(self, entry: ProgressEntry) -> None:
        with self._lock:
            is_first = self.is_empty
            self._progress[entry.lease_id] = entry
        if is_first:
            self.on_first()

    @property
    def is_empty(self) -> bool:
        return not self._logs and not self._progress

    async def flush(self) -> int:
        """Writes what has been gathered; what could not be written is kept for the next time."""
        async with self._writing:
            logs, steps = self._gathered()
            try:
                if steps:
                    await self.store.write(progress, list(steps.values()))
                if logs:
                    await self.store.write(append_logs, logs)
            except Exception as error:
                if not isinstance(error, self.store.faults_of_data):
                    with self._lock:
                        self._logs = logs + self._logs
                        self._progress = {**steps, **self._progress}
                raise
            return len(logs) + len(steps)

    def flush_sync(self) -> None:
        """`flush` from a thread, for the last words of a process whose event loop stands still."""
        logs, steps = self._gathered()
        if steps:
            self.store.write_sync(progress, list(steps.values()))
        if logs:
            self.store.write_sync(append_logs, logs)

    def _gathered(self) -> tuple[list[LogEntry], dict[str, ProgressEntry]]:
        with self._lock:
            logs, self._logs = self._logs, []
            steps, self._progress = self._progress, {}
        return logs, steps


class OneRunReports:
    """The Reports of one run, called from whatever thread its handler uses."""

    def __init__(self, all_reports: RunReports, lease: Lease) -> None:
        self._all = all_reports
        self._lease = lease
        self._lines = 0
        self._said = False
        self._kept: dict[str, Any] = {}
        self._lock = threading.Lock()

    def _now(self) -> datetime:
        return self._all.store.clock.now()

    def progress(self, fraction: float | None, message: str | None) -> None:
        self._said = True
        lease = self._lease
        self._all.add_progress(ProgressEntry(lease.id, lease.worker_id, lease.fence, fraction, message, self._now()))

    def log(self, stream: str, text: str) -> None:
        lease = self._lease
        with self._lock:
            self._said = True
            self._lines += 1
            entry = LogEntry(lease.id, lease.worker_id, lease.fence, self._lines, stream, text, self._now())
            self._all.add_log(entry)

    def artifact(self, name: str, data: bytes | Path) -> None:
        content = data.read_bytes() if isinstance(data, Path) else data
        digest = hashlib.sha256(content).hexdigest()
        lease = self._lease
        folder = self._all.artifact_dir
        path: Path | None = None
        if folder is not None:
            path = folder / lease.id / f"{name}.{secrets.token_hex(6)}"
        elif len(content) > IN_STORE_MAX:
            raise Invalid(
                f"The artifact {name} has {len(content)} bytes; the store keeps up to {IN_STORE_MAX}. Set artifact_dir "
                "to a folder that all workers share.",
                code="artifact_too_large",
                field=name,
            )
        entry = ArtifactEntry(
            lease_id=lease.id,
            worker_id=lease.worker_id,
            fence=lease.fence,
            name=name,
            size=len(content),
            sha256=digest,
            path=str(path) if path else None,
            data=None if path else content,
        )
        try:
            if path is not None:
                _write_private(path, content)
            replaced = self._all.store.write_sync(replace_artifact, entry)
        except BaseException:
            if path is not None:
                self._take_back(path)
            raise
        if replaced is None:
            if path is not None:
                _remove(path)
            raise Invalid(f"The artifact {name} was refused: the lease of this run is gone.", code="lease_lost")
        for old in replaced:
            _remove(Path(old))
        with self._lock:
            self._kept[name] = {"size": len(content), "sha256": digest}

    def _take_back(self, path: Path) -> None:
        """Removes a file that was not recorded. Who cannot learn whether it was leaves it where it is."""
        try:
            recorded = [artifact.path for artifact in self._all.store.read_sync(list_artifacts, self._lease.id)]
        except Exception:
            return
        if str(path) not in recorded:
            _remove(path)

    @property
    def any_made(self) -> bool:
        """Whether the run reported anything: most do not."""
        return self._said or bool(self._kept)

    async def finish(self) -> dict[str, Any]:
        """Sees to it that everything the run said is written, and returns its artifacts."""
        if self._said:
            try:
                await self._all.flush()
            except Exception as error:
                log.warning("the last lines of run %s are still to be written: %s", self._lease.id, error)
        return self._kept


def _remove(path: Path) -> None:
    """A file that stays although nobody needs it is no reason to fail the work; retention finds it."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("the file %s of an artifact could not be removed: %s", path, error)


def _write_private(path: Path, content: bytes) -> None:
    """Writes a file that only this user can read, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
