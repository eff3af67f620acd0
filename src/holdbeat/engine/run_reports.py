"""Reports of running handlers: progress, logs and artifacts, stored apart from the run and fenced by the lease.

Progress and log lines are collected and written a few times a second for all runs together; before a run is settled,
its last ones are on disk. A report of a lost lease is dropped by the store, not by us (LEASE-03): so each version of
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
from typing import Any, TypeVar

from holdbeat.domain.errors import Invalid
from holdbeat.domain.lease import Lease
from holdbeat.engine.open_steps import OpenSteps
from holdbeat.handlers.stop import StopReason, StopSignal
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.artifact_files import make_private
from holdbeat.store.running.run_output import (
    CHUNKS,
    ArtifactEntry,
    LogEntry,
    ProgressEntry,
    append_logs,
    list_artifacts,
    note_open_steps,
    progress,
    replace_artifact,
)
from holdbeat.store.transaction import Transaction
from holdbeat.store.work import Work

T = TypeVar("T")

log = logging.getLogger("holdbeat.engine")

FLUSH_S = 0.2
CHUNK_FLUSH_S = 0.03
"""What handlers emit is waited for by somebody."""


class RunReports:
    """Collects the reports of all runs of this process."""

    def __init__(self, store: PersistenceAdapter, artifact_dir: Path | None) -> None:
        self.store = store
        self.artifact_dir = artifact_dir
        self._lock = threading.Lock()
        self._logs: list[LogEntry] = []
        self._progress: dict[str, ProgressEntry] = {}
        self.open_steps = OpenSteps()
        self._writing = asyncio.Lock()
        self.has_chunks = False
        """Whether something that a handler emitted waits to be written."""
        self.on_first: Callable[[], None] = lambda: None
        """Called from any thread when something waits to be written and nothing did before."""

    def of(self, lease: Lease, stop: StopSignal | None = None) -> OneRunReports:
        return OneRunReports(self, lease, stop or StopSignal())

    def add_log(self, entry: LogEntry) -> None:
        with self._lock:
            is_first = self.is_empty
            self._logs.append(entry)
            is_first |= not self.has_chunks and entry.stream in CHUNKS
            self.has_chunks |= entry.stream in CHUNKS
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
        return not self._logs and not self._progress and self.open_steps.is_empty

    async def flush(self, *, ended: Lease | None = None) -> int:
        """Writes what was collected, of a run that has ended all; the rest is kept for the next time."""
        async with self._writing:
            logs, reported = self._take_collected()
            steps = self.open_steps.take(self.store.clock.now(), ended=ended)
            try:
                if reported:
                    await self.store.write(progress, list(reported.values()))
                if steps:
                    self.open_steps.forget(await self.store.write(note_open_steps, steps))
                if logs:
                    await self.store.write(append_logs, logs)
            except Exception as error:
                if not isinstance(error, self.store.faults_of_data):
                    self.open_steps.put_back(steps)
                    with self._lock:
                        self._logs = logs + self._logs
                        self._progress = {**reported, **self._progress}
                raise
            return len(logs) + len(reported) + len(steps)

    def flush_sync(self) -> None:
        """`flush` from a thread, for the end of a process whose event loop is blocked."""
        logs, reported = self._take_collected()
        if reported:
            self.store.write_sync(progress, list(reported.values()))
        if logs:
            self.store.write_sync(append_logs, logs)

    def _take_collected(self) -> tuple[list[LogEntry], dict[str, ProgressEntry]]:
        with self._lock:
            logs, self._logs = self._logs, []
            self.has_chunks = False
            reported, self._progress = self._progress, {}
        return logs, reported


class OneRunReports:
    """The Reports of one run, called from whatever thread its handler uses."""

    def __init__(self, all_reports: RunReports, lease: Lease, stop: StopSignal) -> None:
        self._all = all_reports
        self._lease = lease
        self._stop = stop
        self._lines = 0
        self._has_reported = False
        self._artifacts: dict[str, Any] = {}
        self._lock = threading.Lock()

    def _now(self) -> datetime:
        return self._all.store.clock.now()

    def progress(self, fraction: float | None, message: str | None) -> None:
        self._has_reported = True
        lease = self._lease
        self._all.add_progress(ProgressEntry(lease.id, lease.worker_id, lease.fence, fraction, message, self._now()))

    def open_steps(self) -> dict[str, datetime]:
        is_first = self._all.is_empty
        steps = self._all.open_steps.of(self._lease)
        if is_first:
            self._all.on_first()
        return steps

    def log(self, stream: str, text: str) -> None:
        lease = self._lease
        with self._lock:
            self._has_reported = True
            self._lines += 1
            entry = LogEntry(lease.id, lease.worker_id, lease.fence, self._lines, stream, text, self._now())
            self._all.add_log(entry)

    def artifact(self, name: str, data: bytes | Path) -> None:
        content = data.read_bytes() if isinstance(data, Path) else data
        digest = hashlib.sha256(content).hexdigest()
        lease = self._lease
        folder = self._all.artifact_dir
        path = None if folder is None else folder / lease.id / f"{name}.{secrets.token_hex(6)}"
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
            replaced = self._ask(replace_artifact, entry, read_only=False)
        except BaseException:
            if path is not None:
                self._remove_unrecorded(path)
            raise
        if replaced is None:
            if path is not None:
                _remove(path)
            raise _lease_lost(f"The artifact {name} was refused: the lease of this run is gone.")
        for old in replaced:
            _remove(Path(old))
        with self._lock:
            self._artifacts[name] = {"size": len(content), "sha256": digest}

    def _remove_unrecorded(self, path: Path) -> None:
        """Removes a file that was not recorded. If the store cannot say whether it was, the file stays."""
        try:
            artifacts = self._ask(list_artifacts, self._lease.id, read_only=True)
        except Exception:
            return
        if str(path) not in {artifact.path for artifact in artifacts}:
            _remove(path)

    def _ask(self, verb: Callable[[Transaction, Any], T], argument: object, *, read_only: bool) -> T:
        """The store's answer, waited for in a thread; not beyond the loss of the lease, whatever the store does."""
        work = Work(verb, (argument,), {})
        assert work.future is not None
        over = threading.Event()

        def on_stop() -> None:
            if self._stop.reason is StopReason.LOST:
                over.set()

        unsubscribe = self._stop.subscribe(on_stop)
        try:
            work.future.add_done_callback(lambda _: over.set())
            self._all.store.submit(work, read_only=read_only)
            over.wait()
        finally:
            unsubscribe()
        if not work.future.done():
            work.future.cancel()  # what the store has not begun, it will not begin
            raise _lease_lost("The lease of this run was lost while the store did not answer.")
        answer: T = work.future.result()
        return answer

    @property
    def any_made(self) -> bool:
        """Whether the run reported anything that is to be kept: most do not."""
        return self._has_reported or bool(self._artifacts) or self._all.open_steps.has_open(self._lease)

    async def finish(self) -> dict[str, Any]:
        """Writes what the run still has to report, and returns its artifacts."""
        if self._has_reported or self._all.open_steps.has_open(self._lease):
            try:
                await self._all.flush(ended=self._lease)
            except Exception as error:
                log.warning("the last lines of run %s are still to be written: %s", self._lease.id, error)
        return self._artifacts

    def close(self) -> None:
        """The run has ended, and reports nothing any more."""
        self._all.open_steps.forget([self._lease.id])


def _lease_lost(sentence: str) -> Invalid:
    return Invalid(sentence, code="lease_lost")


def _remove(path: Path) -> None:
    """A file that nobody needs any more is no reason to fail the work; retention removes it."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("the file %s of an artifact could not be removed: %s", path, error)


def _write_private(path: Path, content: bytes) -> None:
    """Writes a file that only this user can read, whole or not at all."""
    make_private(path.parent.parent)
    path.parent.mkdir(mode=0o700, exist_ok=True)
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
