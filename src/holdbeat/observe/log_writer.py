"""QueuedHandler: a log handler that formats and writes lines in a thread of its own, many in one write.

Guards the threads that log, the committing one above all: they only append to a queue. Nothing that was logged before
an orderly exit is lost: `logging` flushes its handlers at the interpreter's end, and an error or worse is written
before the call that logged it returns. A queue that is full drops what is below WARNING and says how many lines.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from typing import Any, TextIO

from holdbeat.store.event_lines import Lines, records_of

MOST_WAITING = 20_000
"""Lines that may wait to be written, some 10 MB."""
GATHER_S = 0.05
"""After each write the thread waits this long, so that what is logged meanwhile goes out in one write."""
FULL_WAIT_S = 0.1
"""How long a warning waits for a full queue to be written, before it is dropped too."""
ERROR_WAIT_S = 1.0
"""How long an error waits until it is written."""

_Together = tuple[logging.LogRecord, Lines]
"""Lines of one commit, and the record that they share."""


class QueuedHandler(logging.StreamHandler[TextIO]):
    """Writes to a stream from its own thread, which it starts with the first line."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._waiting: deque[tuple[int, logging.LogRecord | _Together]] = deque()
        self._count = 0
        self._dropped = 0
        self._reset()
        _ALL.add(self)

    def _reset(self) -> None:
        """Also in a forked child: the lines that wait belong to the parent, and its thread is not here."""
        self._waiting.clear()
        self._count = self._dropped = 0
        self._counting = threading.RLock()  # a signal handler may log while its own thread does
        self._writing = threading.RLock()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None

    def handle(self, record: logging.LogRecord) -> Any:
        passed = self.filter(record)
        if passed:
            self._put(record.levelno, 1, passed if isinstance(passed, logging.LogRecord) else record)
        return passed

    def handle_later(self, base: logging.LogRecord, lines: Lines) -> None:
        """Takes the lines of one commit."""
        self._put(base.levelno, lines.count, (base, lines))

    def _put(self, level: int, count: int, item: logging.LogRecord | _Together) -> None:
        if self._count >= MOST_WAITING and not (level >= logging.WARNING and self._write_within(FULL_WAIT_S)):
            with self._counting:
                self._dropped += count
            return
        with self._counting:
            self._count += count
        self._waiting.append((count, item))
        if level >= logging.ERROR:
            self._write_within(ERROR_WAIT_S)
        elif self._thread is not None or self._start():
            self._ready.set()
        else:
            self._write_within(ERROR_WAIT_S)

    def _start(self) -> bool:
        with self._counting:
            if self._thread is None:
                thread = threading.Thread(target=self._loop, name="holdbeat-log", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the interpreter is ending
                    return False
                self._thread = thread
        return True

    def _loop(self) -> None:
        ready = self._ready
        while True:
            ready.wait()
            ready.clear()
            with self._writing:
                self._write_all()
            time.sleep(GATHER_S)

    def flush(self) -> None:
        """Writes all that waits, in the calling thread."""
        with self._writing:
            self._write_all()

    def _write_within(self, wait_s: float) -> bool:
        if not self._writing.acquire(timeout=wait_s):
            return False
        try:
            self._write_all()
        finally:
            self._writing.release()
        return True

    def _write_all(self) -> None:
        lines: list[str] = []
        written = 0
        while self._waiting:
            count, item = self._waiting.popleft()
            written += count
            lines += self._formatted(item)
        with self._counting:
            self._count -= written
            dropped, self._dropped = self._dropped, 0
        if dropped:
            sentence = (
                "%d log lines were dropped: they came faster than they could be written. Log less (--log-level "
                "warning) or to a faster place."
            )
            record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, sentence, (dropped,), None)
            lines += self._formatted(record)
        if not lines:
            return
        lines.append("")
        try:
            self.stream.write(self.terminator.join(lines))
            self.stream.flush()
        except Exception:
            # As logging does it: a stream that is gone or full must not stop the program.
            self.handleError(logging.LogRecord(__name__, logging.ERROR, __file__, 0, "log lines", (), None))

    def _formatted(self, item: logging.LogRecord | _Together) -> list[str]:
        record: logging.LogRecord | None = None
        lines: list[str] = []
        try:
            if isinstance(item, logging.LogRecord):
                return [self.format(item)]
            base, together = item
            format_together = getattr(self.formatter, "format_together", None)
            if format_together is not None:
                lines += format_together(base, together)
                return lines
            for record in records_of(base, together.make()):
                lines.append(self.format(record))
        except Exception:
            self.handleError(record or logging.LogRecord(__name__, logging.ERROR, __file__, 0, "a line", (), None))
        return lines


_ALL: weakref.WeakSet[QueuedHandler] = weakref.WeakSet()


def flush_logs() -> None:
    """Writes all lines that wait: for a process that ends without the interpreter's end (os._exit)."""
    for handler in list(_ALL):
        handler._write_within(ERROR_WAIT_S)


def _after_fork_in_child() -> None:
    for handler in list(_ALL):
        handler._reset()


os.register_at_fork(after_in_child=_after_fork_in_child)
