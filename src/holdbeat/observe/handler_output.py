"""Keeps what handlers print and log with the standard library with their runs (LOG-01).

Installed once for a process, not for each run. `logging` is heard where records are made, so that no handler and no
level of the program is touched; `print` is heard through stand-ins for sys.stdout and sys.stderr.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from holdbeat.handlers.current_run import current_run, in_hook, log_output, record_text

_lock = threading.Lock()
_installed = 0
_remove: Callable[[], None] | None = None


def capture(*, is_own_process: bool) -> Callable[[], None]:
    """Begins to keep what handlers print and log. Returns how to end that; it is counted, and ends with the last.

    In a process of Holdbeat's own their words go to its log as records. A program that embeds Holdbeat has its own
    log, and its standard output stays as it is.
    """
    global _installed, _remove
    with _lock:
        _installed += 1
        unwrap: Callable[[], None] | None = None
        if _installed == 1:
            _remove = _install(is_own_process)
        elif not isinstance(sys.stdout, RunStream):
            unwrap = _wrap_streams(is_own_process)  # the program has replaced them since
    is_over = False

    def end() -> None:
        nonlocal is_over
        global _installed
        with _lock:
            if is_over:
                return
            is_over = True
            if unwrap is not None:
                unwrap()
            _installed -= 1
            if _installed == 0 and _remove is not None:
                _remove()

    return end


def _install(is_own_process: bool) -> Callable[[], None]:
    make_record = logging.getLogRecordFactory()

    def record_of_run(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make_record(*args, **kwargs)
        if f"{record.name}.".startswith("holdbeat."):
            return record
        run = current_run.get()
        if run is None and in_hook.get():
            record.holdbeat_run = None  # of no run, and wanted in the log of the process all the same
        if run is not None:
            # Names of our own: a caller's `extra` may have any other, and must not find it taken.
            record.holdbeat_run = run.run_id
            record.holdbeat_job = run.job.id if run.job is not None else None
            run.write_log("log", record_text(record))
        return record

    logging.setLogRecordFactory(record_of_run)
    unwrap = _wrap_streams(is_own_process)

    def remove() -> None:
        if logging.getLogRecordFactory() is record_of_run:
            logging.setLogRecordFactory(make_record)
        unwrap()

    return remove


def _wrap_streams(is_own_process: bool) -> Callable[[], None]:
    """Puts a RunStream before sys.stdout and sys.stderr. Returns how to take them away again."""
    streams = {
        name: RunStream(stream, name, is_own_process)
        for name in ("stdout", "stderr")
        if (stream := getattr(sys, name)) is not None
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)

    def unwrap() -> None:
        for name, stream in streams.items():
            if getattr(sys, name) is stream:
                setattr(sys, name, stream.stream)

    return unwrap


class RunStream:
    """Replaces sys.stdout or sys.stderr: the output of a handler goes to its run's log."""

    def __init__(self, stream: TextIO, name: str, is_own_process: bool) -> None:
        self.stream = stream
        self._name = name
        self._is_own_process = is_own_process

    def write(self, text: str) -> int:
        run = current_run.get()
        if run is None:
            return self.stream.write(text)
        if run.is_log_full:
            return len(text)
        lines = run.write_piece(self._name, text)
        if not self._is_own_process:
            self.stream.write(text)
        elif lines:
            log_output(run, self._name, lines)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
