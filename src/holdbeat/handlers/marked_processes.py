"""The mark of a run in the environment of its processes, by which those are found that left its process group.

Imports nothing of Holdbeat: the watcher, which must start quickly, uses it too.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

RUN_MARK = "HOLDBEAT_RUN_ID"
_SWEEPS = 20
"""How often it looks again, because a process that forks may be between two looks."""

_EXEC_PAUSES_S = [0.001 * 2**number for number in range(10)]
"""When a process is looked at again that is between two programs. On a busy machine that can last a while."""
_START_CODE, _ENV_START, _ENV_END = 26 - 3, 50 - 3, 51 - 3
"""Fields of /proc/PID/stat, counted from the state: where program and environment are in memory. The kernel writes the
place of the program last."""


def kill_marked(run_ids: Collection[str]) -> int:
    """Kills every process of this user on this machine that has the mark of one of these runs. Returns how many."""
    marks = _marks(run_ids)
    killed: set[int] = set()
    for _ in range(_SWEEPS):
        now_killed = {pid for pid in _marked(marks) if _kill_marked(pid, marks)}
        killed |= now_killed
        if not now_killed:
            break
    return len(killed)


def marked(run_ids: Collection[str]) -> list[int]:
    """The processes of this user on this machine that have the mark of one of these runs."""
    return _marked(_marks(run_ids))


def _marks(run_ids: Collection[str]) -> frozenset[bytes]:
    return frozenset(f"{RUN_MARK}={run_id}".encode() for run_id in run_ids)


def _marked(marks: frozenset[bytes]) -> list[int]:
    if not hasattr(os, "pidfd_open"):  # not Linux
        return []
    found, starting = _look_at([int(entry) for entry in os.listdir("/proc") if entry.isdecimal()], marks)
    for pause_s in _EXEC_PAUSES_S:
        if not starting:
            break
        time.sleep(pause_s)
        more, starting = _look_at(starting, marks)
        found += more
    return found


def _look_at(pids: list[int], marks: frozenset[bytes]) -> tuple[list[int], list[int]]:
    """Which of these processes have the mark, and which are in the middle of an exec."""
    found, starting = [], []
    for pid in pids:
        environment = _environment(pid)
        if not marks.isdisjoint(environment.split(b"\0")):
            found.append(pid)
        elif not environment and _is_in_exec(pid):
            starting.append(pid)
    return found, starting


def _environment(pid: int) -> bytes:
    """Nothing where the process is gone, a zombie, of another user, or begins another program just now."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _is_in_exec(pid: int) -> bool:
    """Whether a process of this user whose environment was empty is between two programs, or was just now. One that was
    started without an environment is not."""
    try:
        os.readlink(f"/proc/{pid}/exe")  # kernel threads, zombies and processes of others have none to be read
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return fields[_START_CODE] == "0" or fields[_ENV_START] != fields[_ENV_END]
    except (OSError, IndexError):
        return False


def _kill_marked(pid: int, marks: frozenset[bytes]) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Read once more now that the pidfd stands for the process: its number may be another's by now.
        if marks.isdisjoint(_environment(pid).split(b"\0")):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
