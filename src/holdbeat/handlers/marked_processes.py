"""The mark of a run in the environment of its processes, by which those are found that left its process group.

Imports nothing of Holdbeat: the watcher, which must start quickly, uses it too.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

RUN_MARK = "HOLDBEAT_RUN_ID"
_SWEEPS = 20
"""How often it looks again, because a process that forks may be between two looks."""


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
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal() and _has_mark(int(entry), marks)]


def _has_mark(pid: int, marks: frozenset[bytes]) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return not marks.isdisjoint(file.read().split(b"\0"))
    except OSError:  # gone, a zombie, or of another user
        return False


def _kill_marked(pid: int, marks: frozenset[bytes]) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Read once more now that the pidfd stands for the process: its number may be another's by now.
        if not _has_mark(pid, marks):
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
