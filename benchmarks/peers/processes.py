"""Processes of a measurement: started, watched through /proc, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
STOP_LIMIT_S = 15.0


class Failed(Exception):
    """A contestant did not do what was asked; the sentence says what happened."""


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, or None if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (OSError, ValueError):
        return None


def parent_of(pid: int) -> int:
    fields = _stat(pid)
    if fields is None:
        raise Failed(f"process {pid} is gone")
    return int(fields[1])


def tree(root: int) -> list[int]:
    """A process and all its descendants."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))) is not None:
            parents[int(name)] = int(fields[1])
    members = [root]
    for member in members:
        members += [pid for pid, parent in parents.items() if parent == member]
    return members


def cpu_seconds(root: int) -> float:
    """CPU time of a process and its descendants, those included that ended and were waited for."""
    total = 0
    for pid in tree(root):
        fields = _stat(pid)
        if fields is not None:
            total += sum(int(text) for text in fields[11:15])
    return total / _TICKS


def rss_mb(root: int) -> float:
    """Resident memory of a process and its descendants; pages that they share count for each of them."""
    total = 0
    for pid in tree(root):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return total * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


class Worker:
    """A worker process with its log in a file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises if it has ended by itself."""
        code = self._process.poll()
        if code is not None:
            raise Failed(f"the worker ended with exit code {code}: {last_line(self._log.read_text(errors='replace'))}")

    def stop(self) -> None:
        """Asks it to end, and kills what is left of its session after a while."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def running(workers: Sequence[Worker]) -> Iterator[Sequence[Worker]]:
    try:
        yield workers
    finally:
        for worker in workers:
            worker.stop()


def idle_cpu_percent(root: int, seconds: float) -> float:
    """CPU of a process tree over that time, in percent of one core."""
    start, before = time.monotonic(), cpu_seconds(root)
    time.sleep(seconds)
    return 100 * (cpu_seconds(root) - before) / (time.monotonic() - start)


def output_of(command: Sequence[str], environment: Mapping[str, str], folder: Path, limit_s: float) -> str:
    """Runs a program to its end, and gives what it printed."""
    process = subprocess.Popen(
        command,
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Failed(f"{' '.join(command[-4:])} was not done after {limit_s:g} s") from None
    if process.returncode:
        raise Failed(f"exit code {process.returncode}: {last_line(errors)}")
    return output


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it printed nothing"
