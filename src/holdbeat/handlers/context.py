"""The Context: what a handler knows about its run, and how it reports while it runs.

Guards that a handler's reports stay small and storable whatever it sends: names of artifacts cannot leave
their directory, a run's log is capped and marked, text is cleaned of what a store cannot hold.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, MutableMapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from holdbeat.domain.bounds import Duration, duration_s
from holdbeat.domain.clock import Clock, SystemClock
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import Job
from holdbeat.domain.params import dumps, storable_text
from holdbeat.handlers.step_calls import PlainStepCalls, StepCalls
from holdbeat.handlers.stop import StopReason, StopSignal
from holdbeat.handlers.to_json import as_params
from holdbeat.handlers.upstreams import NO_UPSTREAMS, Upstreams
from holdbeat.handlers.wait_calls import PlainWaitCalls, WaitCalls

if TYPE_CHECKING:
    from holdbeat.handlers.artifact_writes import ArtifactWrite, ArtifactWrites
    from holdbeat.handlers.steps import Keeper

MAX_LOG_BYTES = 1_048_576
DEFAULT_SUSPEND_S = 5.0
"""A handler that waits for less does so in place; for longer, its run ends meanwhile."""
TRUNCATED = "[output truncated]\n"
TEXT_CHUNK, JSON_CHUNK = "chunk", "chunk.json"
"""The streams of what a handler emits. It is kept beside the lines of the log, and counted apart."""
_LINE_LIMIT = 8192
_ARTIFACT_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,119}")


class Skip(Exception):
    """Raised by a handler that finds nothing to do: the run ends SKIPPED with this reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class PermanentFailure(Exception):
    """Raised by a handler that knows that trying again is useless: the run ends FAILED and is not retried."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class RateLimited(Exception):
    """Raised by a handler that was told to call again later: the run ends FAILED, and is retried then, not counted.

    Until then nothing of the same partition starts under the limits that cover the job.
    """

    def __init__(self, reason: str = "", *, retry_after: Duration) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = duration_s(retry_after, field="retry_after")


class Cancelled(BaseException):
    """Raised at a checkpoint when the handler should end.

    It derives from BaseException, as asyncio's CancelledError does: handlers are full of loops that catch Exception,
    note the failure and take the next item, and such a loop must not eat the request to stop. Clean up in `finally`; if
    you catch it, raise it again.
    """


class Reports(Protocol):
    """Where a Context sends what the handler says. Methods may be called from any thread, and return soon.

    A report that cannot be kept must not fail the work. Only `artifact` raises, because a file that was not kept is a
    failure of the work.
    """

    def progress(self, fraction: float | None, message: str | None) -> None: ...

    def open_steps(self) -> MutableMapping[str, datetime]:
        """The steps that have begun and are not over, and when they began; whoever changes it reports that. A step is
        over when it is kept, or followed by another after it failed."""

    def log(self, stream: str, text: str) -> None:
        """A piece of text, usually whole lines, of `stdout`, `stderr` or `log`."""

    def artifact(self, name: str, data: bytes | Path) -> None:
        """Keeps the bytes, or the content that the file has now."""


def check_artifact_name(name: str) -> str:
    """Refuses names that could mean another directory, a hidden file, or the return value."""
    if not isinstance(name, str) or not _ARTIFACT_NAME.fullmatch(name):
        raise Invalid(
            "An artifact's name has 1 to 120 letters, digits, dots, dashes or underscores, and does not "
            "begin with a dot.",
            code="invalid_artifact_name",
            field="name",
        )
    if name == "result":
        raise Invalid(
            "The artifact named result is what the handler returns; choose another name.",
            code="invalid_artifact_name",
            field="name",
        )
    return name


def _attempt(report: Callable[[], None]) -> None:
    """A report that cannot be kept must not fail the work that it reports on."""
    try:
        report()
    except Exception:
        logging.getLogger(__name__).exception("A report of a running handler was lost.")


class Context(StepCalls, WaitCalls):
    """One run as its handler sees it. Every thread of the handler may use it."""

    def __init__(
        self,
        *,
        run_id: str,
        type: str,
        title: str = "",
        fence: int,
        slots: Sequence[int] = (),
        reports: Reports,
        stop: StopSignal,
        job: Job | None = None,
        deadline: datetime | None = None,
        clock: Clock | None = None,
        max_log_bytes: int = MAX_LOG_BYTES,
        keeper: Keeper | None = None,
        suspend_s: float = DEFAULT_SUSPEND_S,
        upstream: Upstreams | None = None,
    ) -> None:
        self.job = job
        """The Job, or None for a direct request."""
        self.run_id = run_id
        """The id of this run."""
        self.type = type
        """The name of the job type."""
        self.title = title or type
        """One line that says what the work is about."""
        self.fence = fence
        """Grows with every claim in the store. Send it with your writes: their receiver can refuse smaller ones."""
        self.slots = tuple(slots)
        """The numbers of all its slots: as many as the job weighs."""
        self.slot = self.slots[0] if self.slots else None
        """The number of the slot within the resource, from 0, unique among those who hold one now; None where nothing
        limits the slots of the resource."""
        self.attempt = job.attempt if job is not None else 0
        """0 for the first attempt; each automatic retry that counts adds 1."""
        self.deadline = deadline
        """When the timeout of the run ends, or None."""
        self.upstream = upstream or NO_UPSTREAMS
        """The results of what the job waited for (`after`), by name."""
        self.keeper = keeper
        """Where the run keeps what its chain shall know; None for a direct request."""
        self.suspend_s = suspend_s
        """From which wait on the run ends while it waits."""
        self._reports = reports
        self._stop = stop
        self._clock = clock or SystemClock()
        self._ends_at: float | None = None
        if deadline is not None:
            # Counted on the monotonic clock, so that a jump of the wall clock neither adds nor takes time.
            left_s = (deadline - self._clock.now()).total_seconds()
            self._ends_at = self._clock.monotonic() + left_s
        self._log_lock = threading.Lock()
        self._log_left = self._chunks_left = max_log_bytes
        self._artifact_writes: ArtifactWrites | None = None
        self._pieces: dict[str, str] | None = None
        """Of each stream the beginning of a line that is not complete yet."""
        self.traceback: str | None = None
        """Of the exception that ended the handler."""

    @property
    def for_plain_calls(self) -> SyncContext:
        """The same Context for a handler that cannot await."""
        plain = SyncContext.__new__(SyncContext)
        plain.__dict__ = self.__dict__
        return plain

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: it was cancelled, timed out, is shut down, or has lost its lease."""
        return self._stop.is_set

    def checkpoint(self) -> None:
        """Raises Cancelled if the handler should stop; call it where stopping is safe."""
        if self._stop.is_set:
            raise Cancelled(f"told to end: {self._stop.reason}")

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the deadline, at least 0; None without one."""
        if self._ends_at is None:
            return None
        return max(0.0, self._ends_at - self._clock.monotonic())

    def progress(self, fraction: float | None, message: str | None = None) -> None:
        """Reports how far the work is, from 0 to 1, and in words what it does now."""
        if fraction is not None:
            fraction = float(fraction)
            fraction = None if math.isnan(fraction) else min(1.0, max(0.0, fraction))
        text = None if message is None else storable_text(str(message), 500)
        _attempt(lambda: self._reports.progress(fraction, text))

    def open_steps(self) -> MutableMapping[str, datetime]:
        """The steps that are open and when they began, as others see them."""
        return self._reports.open_steps()

    def log(self, *parts: object) -> None:
        """Adds a line to the log of the run, as print does."""
        self.write_log("log", " ".join(str(part) for part in parts) + "\n")

    def emit(self, chunk: object) -> None:
        """Streams a piece of output to the followers of the run: text as it is, anything else as JSON.

        Pieces are kept with the run, in order, up to 1 MB in all; then a mark, and nothing more.
        """
        if isinstance(chunk, str):
            self._write_chunk(TEXT_CHUNK, chunk)
        else:
            try:
                text = dumps(as_params(chunk))
            except (TypeError, ValueError) as error:
                raise Invalid(f"emit takes text, or what can be JSON: {error}", code="invalid_chunk") from None
            self._write_chunk(JSON_CHUNK, text)

    def _write_chunk(self, stream: str, text: str) -> None:
        with self._log_lock:
            if self._chunks_left < 0 or not text:
                return
            self._chunks_left -= len(text.encode("utf-8", "replace"))
            if self._chunks_left < 0:
                stream, text = TEXT_CHUNK, TRUNCATED
        _attempt(lambda: self._reports.log(stream, storable_text(text)))

    def write_log(self, stream: str, text: str) -> None:
        """Adds text to one stream of the log; beyond the cap for the whole run nothing is kept but a mark."""
        if stream in (TEXT_CHUNK, JSON_CHUNK):
            return self._write_chunk(stream, text)
        with self._log_lock:
            if self._log_left <= 0 or not text:
                return
            size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
            if size <= self._log_left:
                self._log_left -= size
            else:
                text = text.encode("utf-8", "replace")[: self._log_left].decode("utf-8", "ignore")
                text += ("" if text.endswith("\n") else "\n") + TRUNCATED
                self._log_left = 0
        _attempt(lambda: self._reports.log(stream, storable_text(text)))

    def write_piece(self, stream: str, text: str) -> str:
        """Adds text that comes in pieces, as print writes it, line by line. Returns the lines that are complete."""
        with self._log_lock:
            if self._pieces is None:
                self._pieces = {}
            lines, newline, rest = (self._pieces.get(stream, "") + text).rpartition("\n")
            if len(rest) > _LINE_LIMIT:
                lines, newline, rest = lines + newline + rest, "\n", ""
            self._pieces[stream] = rest
        if newline:
            self.write_log(stream, lines + newline)
        return lines + newline

    def finish_output(self) -> None:
        """Writes what was printed without an end of line."""
        for stream, text in (self._pieces or {}).items():
            self.write_log(stream, text)

    @property
    def is_log_full(self) -> bool:
        return self._log_left <= 0

    def artifact(self, name: str, data: bytes | str | Path) -> ArtifactWrite:
        """Stores a file with the run: bytes, text (as UTF-8), or the content of the file at a Path.

        In a thread it returns when the artifact is stored. In an event loop it returns at once, because the loop must
        not wait for the store: `await` it to know that it is stored. The run does not end before it is, and fails if
        it could not be and nobody awaited it.
        """
        check_artifact_name(name)
        if isinstance(data, str):
            data = data.encode()
        elif isinstance(data, bytearray | memoryview):
            data = bytes(data)
        elif not isinstance(data, bytes | Path):
            raise Invalid(
                f"An artifact is bytes, text or a Path, not of the type {type(data).__name__}.",
                code="invalid_artifact",
                field=name,
            )
        import asyncio  # here, because the processes of most runs need none

        from holdbeat.handlers.artifact_writes import ArtifactWrite, ArtifactWrites

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._write_artifact(name, data)
            return ArtifactWrite()
        content = data.read_bytes() if isinstance(data, Path) else data
        if self._artifact_writes is None:
            self._artifact_writes = ArtifactWrites()
        return self._artifact_writes.begin(lambda: self._write_artifact(name, content))

    def _write_artifact(self, name: str, data: bytes | Path) -> None:
        try:
            if self._stop.reason is not StopReason.LOST:
                self._reports.artifact(name, data)
                return
        except Invalid:
            if self._stop.reason is not StopReason.LOST:
                raise
        raise Cancelled(f"told to end: {self._stop.reason}")

    async def artifacts_written(self) -> BaseException | None:
        """Waits for the artifacts that were handed over. Returns a failure that the handler did not wait for."""
        return None if self._artifact_writes is None else await self._artifact_writes.finish()


class SyncContext(PlainStepCalls, PlainWaitCalls, Context):  # type: ignore[misc]
    """The Context of a handler that is no coroutine: what is awaited elsewhere is a plain call here."""
