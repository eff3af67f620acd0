"""One command in a process group of its own: started, told to end, killed, and cleaned up after.

Guards CAN-03 and EXE-02: when `wait` returns, the command has ended, its group is dead, every process that
still carries the run's mark is dead, and its output was read to the end without being kept in memory.

The same is done by others if the worker itself dies: by the watcher at once, and by recovery on the same machine
before it gives the slot away. A descendant that both left the session and cleared its environment escapes them all:
finding it would need a cgroup.

The watcher (`watcher_child.py`) is one process for all runs of a worker, started with the first that has a process. It
guards DEC-001 after a SIGKILL: the kernel ends a run's own process with the worker, but not what that process started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdbeat.domain.clock import SystemClock
from holdbeat.domain.run import ErrorKind, Outcome, RunStatus
from holdbeat.handlers.marked_processes import RUN_MARK, kill_marked, marked
from holdbeat.handlers.output import Output
from holdbeat.handlers.stop import StopReason, StopSignal
from holdbeat.handlers.threads import in_own_thread

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
monotonic = SystemClock().monotonic

_DRAIN_S = 1.0
_LEAVE_S = 0.5
"""How long the processes of a command that has ended may take to notice it, as the trackers of multiprocessing do."""
_POLL_S = 0.02


class ProcessGroup:
    """A started command. Use `start`, then `wait` exactly once."""

    def __init__(self, process: asyncio.subprocess.Process, run_id: str, outputs: Sequence[Output]) -> None:
        self._process = process
        self._run_id = run_id
        self._outputs = outputs
        self._lock = threading.RLock()
        self._kill_timer: threading.Timer | None = None
        self._kill_at = math.inf
        self._is_told = False
        self.was_killed = False
        """Whether we, and nobody else, sent it SIGKILL."""
        self.left_behind = 0
        """How many processes of the run outlived the command and had to be killed."""

    @staticmethod
    async def start(
        argv: Sequence[str],
        *,
        run_id: str,
        stdout: Output,
        stderr: Output,
        env: Mapping[str, str],
        stdin: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> ProcessGroup:
        """Starts the command; raises OSError or ValueError if that is not possible."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout.write_fd,
            stderr=stderr.write_fd,
            env={**env, RUN_MARK: run_id},
            pass_fds=pass_fds,
            start_new_session=True,
        )
        watcher.add(run_id, process.pid)
        for output in (stdout, stderr):
            output.begin()
        return ProcessGroup(process, run_id, (stdout, stderr))

    async def wait(self, stop: StopSignal, *, tell_group: bool) -> int:
        """The exit code (negative: the signal that ended it), once nothing of the run is left.

        A stop sends SIGTERM, to the whole group or to the command alone, and SIGKILL to the group after the
        stop's grace: from the thread that sets it and from a timer's thread, so that a blocked event loop delays
        neither (LEASE-04).
        """
        unsubscribe = stop.subscribe(lambda: self._obey(stop, tell_group))
        try:
            while True:
                try:
                    code = await self._process.wait()
                    break
                except asyncio.CancelledError:
                    # The worker's task itself is being torn down. Killing takes no time, so finish the job.
                    stop.set(StopReason.INTERRUPTED, grace_s=0)
                    self.kill()
        finally:
            unsubscribe()
            with self._lock:
                if self._kill_timer is not None:
                    self._kill_timer.cancel()
        with contextlib.suppress(RuntimeError, MemoryError, OSError):  # no thread, no memory, no descriptors
            leave_s = 0.0 if self.was_killed or stop.is_set else _LEAVE_S
            self.left_behind = await in_own_thread(
                lambda: _clean_up(self._process.pid, self._run_id, leave_s), name="clean-up"
            )
        _signal_group(self._process.pid, signal.SIGKILL)
        watcher.remove(self._run_id)
        for output in self._outputs:
            await output.end(_DRAIN_S)
        return code

    def _obey(self, stop: StopSignal, tell_group: bool) -> None:
        with self._lock:
            if not self._is_told and self._is_running:
                self._is_told = True
                if tell_group:
                    _signal_group(self._process.pid, signal.SIGTERM)
                else:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self._process.pid, signal.SIGTERM)
            if stop.grace_s is not None:
                self.kill_after(stop.grace_s)

    @property
    def _is_running(self) -> bool:
        """Whether the command's process id is still its own; asked in any thread, and without collecting its end."""
        if self._process.returncode is not None:
            return False
        try:
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def kill_after(self, delay_s: float) -> None:
        """Kills the group later, unless it ends before; an earlier appointment stands.

        Where there is no thread to be had, perhaps because of this very command, it is killed at once: it must end.
        """
        at = monotonic() + delay_s
        with self._lock:
            if self._kill_at <= at:
                return
            if self._kill_timer is not None:
                self._kill_timer.cancel()
            timer = threading.Timer(delay_s, self._kill_all)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:
                self.kill()
                return
            self._kill_timer, self._kill_at = timer, at

    def _kill_all(self) -> None:
        """Kills the group and, without waiting for the event loop, whatever left the group and has the run's mark."""
        self.kill()
        kill_marked([self._run_id])

    def kill(self) -> None:
        with self._lock:
            if self._is_running:
                self.was_killed = True
                _signal_group(self._process.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _clean_up(group: int, run_id: str, leave_s: float) -> int:
    """Kills what is left of a run after `leave_s`: its group at once, then each process that carries its mark.

    Those left the group by setsid, as daemons do. Several looks, because one that forks may be between them.
    Returns how many there were when the time was over.
    """
    count = len(marked([run_id]))
    for _ in range(round(leave_s / _POLL_S)):
        if not count:
            break
        time.sleep(_POLL_S)
        count = len(marked([run_id]))
    _signal_group(group, signal.SIGKILL)
    kill_marked([run_id])
    return count


def note_left_behind(count: int) -> str:
    """The mark in the log of a run that did not clean up after itself; empty for one that did."""
    if not count:
        return ""
    return f"[{count} process{'es' if count > 1 else ''} left behind by the handler, killed]\n"


def despite_left_behind(outcome: Outcome, count: int) -> Outcome:
    """The Outcome of a run that left processes behind: no success, for what they still had to do was not done."""
    if not count or outcome.status is RunStatus.FAILED:
        return outcome
    processes = f"{count} processes" if count > 1 else "a process"
    return replace(
        outcome,
        status=RunStatus.FAILED,
        error=f"The handler left {processes} behind, which had to be killed. Wait for what it starts before it ends.",
        error_kind=ErrorKind.ERROR,
    )


def describe_exit(code: int, *, was_killed: bool = False) -> str:
    """An exit code in words; `was_killed`: by us."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", as the kernel does when memory runs out" if -code == signal.SIGKILL and not was_killed else ""
    return f"killed by {name}{hint}"
