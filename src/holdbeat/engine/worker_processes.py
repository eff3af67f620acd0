"""WorkerProcesses: several ordinary workers under one supervising process (`holdbeat worker --processes N`).

The parent opens no store and runs no jobs: it starts the workers, starts one that died again after a growing pause, and
passes signals on. The first SIGTERM or SIGINT begins the shutdown of all, a second ends their grace.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

from holdbeat.domain.clock import Clock
from holdbeat.observe.process_output import streams_before

log = logging.getLogger("holdbeat.processes")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""A worker that lived this long is started again after the first pause."""
STOPPING = (signal.SIGTERM, signal.SIGINT)
GIVES_UP = frozenset({2, 3})
"""Exit codes of a worker that a new start cannot help: wrong settings, and a store that must not be used."""
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class _Child:
    number: int
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    pause_s: float = 0.0
    start_at: float | None = 0.0
    """Monotonic: when it is due to be started; None while it runs."""


class WorkerProcesses:
    """Runs one child for each command until a signal ends them all."""

    def __init__(self, commands: Sequence[Sequence[str]], clock: Clock) -> None:
        self._children = [_Child(number, command) for number, command in enumerate(commands, 1)]
        self._monotonic = clock.monotonic
        self._is_stopping = False
        self._code = 0

    def run(self) -> int:
        """Supervises until every child has ended after a signal; returns the exit code for this process."""
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        # In this order: a signal between the two would be lost.
        wakeup_before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, _ignore) for number in (*STOPPING, signal.SIGCHLD)}
        try:
            while True:
                self._reap()
                if self._is_stopping and not any(child.process for child in self._children):
                    return self._code
                self._start_due()
                select.select([reader], [], [], self._wait_s())
                with contextlib.suppress(BlockingIOError):
                    for number in reader.recv(256):
                        if number in STOPPING:
                            self._stop(signal.Signals(number).name)
        finally:
            signal.set_wakeup_fd(wakeup_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            for child in self._children:
                if child.process is not None:  # only after an error of our own
                    child.process.terminate()
            reader.close()
            writer.close()

    def _wait_s(self) -> float | None:
        due = [child.start_at for child in self._children if child.start_at is not None]
        return None if self._is_stopping or not due else max(0.0, min(due) - self._monotonic())

    def _start_due(self) -> None:
        now = self._monotonic()
        for child in self._children:
            if self._is_stopping or child.start_at is None or child.start_at > now:
                continue
            # In a process group of its own: Ctrl-C reaches this process alone, which passes it on once.
            stdout, stderr = streams_before()
            child.process = subprocess.Popen(
                child.command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                process_group=0,
                preexec_fn=_end_with_parent(),
            )
            child.started_at, child.start_at = now, None
            log.info("worker process %d of %d started, pid %d", child.number, len(self._children), child.process.pid)

    def _reap(self) -> None:
        for child in self._children:
            process = child.process
            if process is None or (code := process.poll()) is None:
                continue
            child.process = None
            if self._is_stopping:
                self._code = self._code or _exit_code(code)
                continue
            if code in GIVES_UP:
                log.error("worker process %d ended with exit code %d; all are stopped", child.number, code)
                self._code = code
                self._stop("the end of a worker")
                continue
            now = self._monotonic()
            is_steady = now - child.started_at >= STEADY_S
            child.pause_s = FIRST_PAUSE_S if is_steady else min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, child.pause_s * 2))
            child.start_at = now + child.pause_s
            log.warning(
                "worker process %d, pid %d, ended with %s; it is started again in %.1f s",
                child.number,
                process.pid,
                f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}",
                child.pause_s,
            )

    def _stop(self, reason: str) -> None:
        log.info(
            "%s: %s", reason, "the grace of all workers ends" if self._is_stopping else "all workers are told to stop"
        )
        self._is_stopping = True
        for child in self._children:
            if child.process is not None:
                child.process.terminate()


def _ignore(number: int, frame: FrameType | None) -> None:
    """The signal is read from the wakeup descriptor."""


def _exit_code(code: int) -> int:
    """The exit code as a shell has it: 128 and the signal's number for a process that a signal ended.

    Our own SIGTERM ends a worker only before it has begun to listen for signals, and so to work: that is no failure.
    """
    if code == -signal.SIGTERM:
        return 0
    return code if code >= 0 else 128 - code


def _end_with_parent() -> Callable[[], None] | None:
    """Has the kernel send the child a SIGTERM when this process dies without a chance to stop it (Linux)."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return in_child
