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
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdbeat.handlers.output import Output
from holdbeat.handlers.stop import StopReason, StopSignal
from holdbeat.handlers.threads import in_own_thread

RUN_MARK = "HOLDBEAT_RUN_ID"
"""In the environment of every process of a run: how its strays are found."""

_DRAIN_S = 1.0
_SWEEPS = 20


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
        _signal_group(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(RuntimeError, MemoryError, OSError):  # no thread, no memory, no descriptors
            await in_own_thread(lambda: _sweep(self._run_id), name="sweep")
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


def _sweep(run_id: str) -> None:
    """Kills every process that carries the run's mark, until a look finds none.

    They left the group by setsid, as daemons do. Several looks, because one that forks may be between them.
    """
    if not hasattr(os, "pidfd_open"):  # not Linux
        return
    mark = f"{RUN_MARK}={run_id}".encode()
    for _ in range(_SWEEPS):
        found = False
        for entry in os.listdir("/proc"):
            if entry.isdecimal() and int(entry) != os.getpid() and _kill_marked(int(entry), mark):
                found = True
        if not found:
            return


def _kill_marked(pid: int, mark: bytes) -> bool:
    # The pidfd is opened first and the environment read after it: so it is the marked process that is killed,
    # and never one that got its number in between.
    environment = Path(f"/proc/{pid}/environ")
    try:
        if mark not in environment.read_bytes().split(b"\0"):
            return False
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if mark not in environment.read_bytes().split(b"\0"):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def describe_exit(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", as the kernel does when memory runs out" if -code == signal.SIGKILL else ""
    return f"killed by {name}{hint}"
