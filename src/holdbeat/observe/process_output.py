"""Descriptors 1 and 2 of a process whose log is JSON: what anybody writes there becomes records of the log (LOG-01).

Subprocesses of handlers, native libraries and the interpreter itself write to these descriptors, not to sys.stdout.
They get pipes in their place, which a process of its own (`output_child.py`) reads; the log keeps the stream that was
there before. That process reads on after this one has ended, also after a crash: it ends with the last writer.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TextIO, cast

from holdbeat.domain.errors import Unavailable
from holdbeat.observe.log_file import LogFile

log = logging.getLogger("holdbeat.output")

END_WAIT_S = 1.0
"""How long the end of this process waits until what was written before is in the log."""
PAUSE_S = 1.0
"""After this pause a reader that has ended is started again."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from holdbeat.observe.output_child import main; "
    "main(*sys.argv[1:])"
)


class CapturedOutput:
    """The two pipes, the process that reads them, and the streams that were there before."""

    def __init__(self) -> None:
        _flush()
        self._pid = os.getpid()
        self._is_over = False
        self.streams = (os.dup(1), os.dup(2))
        self.log_file = LogFile(self.streams[1])
        pipes = (os.pipe(), os.pipe())
        self._readers = tuple(reader for reader, _ in pipes)
        try:
            self._process, self._control = self._start()
        except OSError as error:
            raise Unavailable(
                f"Logs in JSON need a process beside this one, which cannot be started: {error}"
            ) from error
        for descriptor, (_, writer) in enumerate(pipes, 1):
            os.dup2(writer, descriptor)
            os.close(writer)
        threading.Thread(target=self._keep_reading, name="holdbeat-output", daemon=True).start()

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        own_end, child_end = socket.socketpair()
        own_end.settimeout(END_WAIT_S)
        descriptors = (*self._readers, self.streams[1], child_end.fileno())
        # It inherits the blocked signals: those that a service manager sends to all must not end it before the others.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, _ROOT, *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=descriptors,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            child_end.close()
        return process, own_end

    def _keep_reading(self) -> None:
        """Starts the reader again if something ended it: writers would have to wait for a full pipe."""
        while True:
            self._process.wait()
            if self._is_over:
                return
            log.error("the process that writes output to the log ended with %d; it is started again",
                      self._process.returncode)  # fmt: skip
            time.sleep(PAUSE_S)
            with contextlib.suppress(OSError):
                self._process, self._control = self._start()

    def settle(self) -> None:
        """Waits a moment until all that was written so far is in the log."""
        if os.getpid() != self._pid:  # in a fork: the parent's answer is not for us
            return
        _flush()
        with contextlib.suppress(OSError):
            self._control.send(b".")
            self._control.recv(1)

    def release(self) -> None:
        self._is_over = True
        self.settle()
        for descriptor, stream in enumerate(self.streams, 1):
            os.dup2(stream, descriptor)
            os.close(stream)
        for reader in self._readers:
            os.close(reader)
        self._control.close()


_captured: CapturedOutput | None = None


def capture_output() -> TextIO | None:
    """Has all output of this process written as records. Returns the stream of the log.

    A process that was started without standard output or standard error is left as it is.
    """
    global _captured
    if _captured is None:
        if sys.__stdout__ is None or sys.__stderr__ is None:
            return sys.__stderr__
        if isinstance(sys.__stdout__, io.TextIOWrapper):  # before: it asks a file for its position
            sys.__stdout__.reconfigure(line_buffering=True, errors="backslashreplace")
        _captured = CapturedOutput()
        atexit.register(settle_output)
    return cast(TextIO, _captured.log_file)


def release_output() -> None:
    """Puts the streams back."""
    global _captured
    if _captured is not None:
        _captured.release()
        _captured = None


def settle_output() -> None:
    """Waits a moment until all output so far is in the log: for the end of the process."""
    if _captured is not None:
        _captured.settle()


def streams_before() -> tuple[int | None, int | None]:
    """Standard output and standard error for a child that writes a log of its own, as subprocess.Popen takes them."""
    return (None, None) if _captured is None else _captured.streams


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()  # type: ignore[union-attr]
