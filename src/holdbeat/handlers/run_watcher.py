"""The watcher: a process beside the worker that kills what runs have started, should the worker die.

Guards DEC-001 after a SIGKILL: the kernel ends a run's own process with the worker, but not what that process started,
and a retry must not run beside it. One watcher serves all runs of a worker. It starts with the first run that has a
process; `watcher_child.py` is its program.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

log = logging.getLogger("holdbeat.engine")

_HERE = Path(__file__).resolve().parent
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class RunWatcher:
    """Tells the watcher which process groups belong to which runs. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = os.getpid()

    def add(self, run_id: str, group: int) -> None:
        with self._lock:
            if self._pid != os.getpid():  # a fork: the watcher is the parent's
                self._pid, self._process, self._groups = os.getpid(), None, {}
            self._groups[run_id] = group
            if not self._send(f"+{run_id} {group}\n"):
                self._start()

    def remove(self, run_id: str) -> None:
        with self._lock:
            if self._groups.pop(run_id, None) is not None and self._pid == os.getpid():
                self._send(f"-{run_id}\n")

    def _send(self, line: str) -> bool:
        if self._process is None or self._process.stdin is None or self._process.poll() is not None:
            return False
        try:
            self._process.stdin.write(line.encode())
        except OSError:
            return False
        return True

    def _start(self) -> None:
        """Starts a watcher, or another one in place of one that died, and tells it of all runs."""
        # It inherits the blocked signals: those that a service manager sends to all must not end it before the worker.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_HERE / "watcher_child.py"), str(_HERE), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            log.warning("no watcher for the processes of runs could be started: %s", error)
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for run_id, group in self._groups.items():
            self._send(f"+{run_id} {group}\n")


watcher = RunWatcher()
