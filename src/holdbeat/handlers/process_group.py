"""One command in a process group of its own: started, told to end, killed, and cleaned up after.

Guards CAN-03 and EXE-02: when `wait` returns, the command has ended, its group is dead, every process that
still carries the run's mark is dead, and its output was read to the end without being kept in memory.

A descendant that both left the session and wiped its environment escapes: finding it would need a cgroup.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdbeat.domain.run import ErrorKind, Outcome, RunStatus
from holdbeat.handlers.output import Output
from holdbeat.handlers.stop import StopReason, StopSignal
from holdbeat.handlers.threads import in_own_thread

RUN_MARK = "HOLDBEAT_RUN_ID"
"""In the environment of every process of a run: how its strays are found."""

_DRAIN_S = 1.0
_SWEEPS = 20
_LEAVE_S = 0.5
"""How long the processes of a command that has ended may take to notice it, as the trackers of multiprocessing do."""
_LOOK_S = 0.02


class ProcessGroup:
    """A started command. Use `start`, then `wait` exactly once."""

    def __init__(self, process: asyncio.subprocess.Process, run_id: str, outputs: Sequence[Output]) -> None:
        self._process = process
        self._run_id = run_id
        self._outputs = outputs
        self._loop = asyncio.get_running_loop()
        self._kill_timer: asyncio.TimerHandle | None = None
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
        cwd: str | None = None,
    ) -> ProcessGroup:
        """Starts the command; raises OSError or ValueError if that is not possible."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout.write_fd,
            stderr=stderr.write_fd,
            env={**env, RUN_MARK: run_id},
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        for output in (stdout, stderr):
            output.begin()
        return ProcessGroup(process, run_id, (stdout, stderr))

    async def wait(self, stop: StopSignal, *, tell_group: bool) -> int:
        """The exit code (negative: the signal that ended it), once nothing of the run is left.

        A stop sends SIGTERM, to the whole group or to the command alone, and SIGKILL to the group after the
        stop's grace.
        """

        def on_stop() -> None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._obey, stop, tell_group)

        unsubscribe = stop.subscribe(on_stop)
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
            if self._kill_timer is not None:
                self._kill_timer.cancel()
        with contextlib.suppress(RuntimeError, MemoryError, OSError):  # no thread, no memory, no descriptors
            leave_s = 0.0 if self.was_killed or stop.is_set else _LEAVE_S
            self.left_behind = await in_own_thread(
                lambda: _clean_up(self._process.pid, self._run_id, leave_s), name="clean-up"
            )
        _signal_group(self._process.pid, signal.SIGKILL)
        for output in self._outputs:
            await output.end(_DRAIN_S)
        return code

    def _obey(self, stop: StopSignal, tell_group: bool) -> None:
        if self._process.returncode is not None:
            return
        if not self._is_told:
            self._is_told = True
            if tell_group:
                _signal_group(self._process.pid, signal.SIGTERM)
            else:
                with contextlib.suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGTERM)
        if stop.grace_s is not None:
            self.kill_after(stop.grace_s)

    def kill_after(self, delay_s: float) -> None:
        """Kills the group later, unless it ends before; an earlier appointment stands."""
        at = self._loop.time() + delay_s
        if self._kill_timer is not None:
            if self._kill_timer.when() <= at:
                return
            self._kill_timer.cancel()
        self._kill_timer = self._loop.call_at(at, self.kill)

    def kill(self) -> None:
        if self._process.returncode is None:
            self.was_killed = True
            _signal_group(self._process.pid, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _clean_up(group: int, run_id: str, leave_s: float) -> int:
    """Kills what is left of a run after `leave_s`: its group at one blow, then one by one whoever carries its mark.

    Those left the group by setsid, as daemons do. Several looks, because one that forks may be between them.
    Returns how many there were when the time was over.
    """
    mark = f"{RUN_MARK}={run_id}".encode()
    left = len(_marked(mark))
    for _ in range(round(leave_s / _LOOK_S)):
        if not left:
            break
        time.sleep(_LOOK_S)
        left = len(_marked(mark))
    _signal_group(group, signal.SIGKILL)
    for _ in range(_SWEEPS):
        if sum(_kill_marked(pid, mark) for pid in _marked(mark)) == 0:
            break
    return left


def _marked(mark: bytes) -> list[int]:
    if not hasattr(os, "pidfd_open"):  # not Linux
        return []
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal() and _has_mark(int(entry), mark)]


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, a zombie, or somebody else's
        return False


def _kill_marked(pid: int, mark: bytes) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Read once more now that the pidfd holds on to the process: its number may just have changed hands.
        if not _has_mark(pid, mark):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def note_left_behind(count: int) -> str:
    """The mark in the log of a run that did not clean up after itself; empty for one that did."""
    if not count:
        return ""
    return f"[{count} process{'es' if count > 1 else ''} left behind by the handler, killed]\n"


def despite_left_behind(outcome: Outcome, count: int) -> Outcome:
    """The Outcome of a run that left processes behind: no success, for what they still had to do was not done."""
    if not count or outcome.status is RunStatus.FAILED:
        return outcome
    what = f"{count} processes" if count > 1 else "a process"
    return replace(
        outcome,
        status=RunStatus.FAILED,
        error=f"The handler left {what} behind, which had to be killed. Wait for what it starts before it ends.",
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
