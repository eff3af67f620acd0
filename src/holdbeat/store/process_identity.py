"""The identity of a process, by which another process of its machine knows for certain that it is gone.

Guards LEASE-05 against a guess: a process is gone only if its number is free or belongs to a process that began at
another moment, and only processes that must see each other are compared. Whatever cannot be read means that nobody can
tell.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_NAMESPACES = ("pid", "user", "time")
"""Which numbers processes have, whose environment may be read, and by which clock a start is told."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of one boot of one machine. Its number alone is not enough: the kernel uses numbers again."""

    machine: str
    """The host, its boot, and the namespaces and the user of the process: those who share all of it see each other's
    processes and may end what they leave."""
    started: int
    """When it began, in ticks since the boot."""


def this_process() -> ProcessIdentity | None:
    """This process; None where the system does not tell."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespaces = [os.readlink(_PROC / "self/ns" / name) for name in _NAMESPACES if _has_namespace(name)]
        pid, _, _, started = _read_stat("self")
    except (OSError, ValueError):
        return None
    if pid != os.getpid():
        return None  # /proc shows the processes of another namespace
    return ProcessIdentity(" ".join([socket.gethostname(), boot, *namespaces, f"uid:{os.geteuid()}"]), started)


def is_gone(pid: int, started: int) -> bool:
    """Whether the process of this machine with this number and start is certainly gone; False if nobody can tell."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # the process belongs to another user, who may have got the number
    try:
        _, state, threads, began = _read_stat(str(pid))
    except (OSError, ValueError):
        return False
    # Z is also what a process shows whose first thread has ended before the others.
    return began != started or (state == "Z" and threads <= 1)


def _has_namespace(name: str) -> bool:
    return name != "time" or os.path.lexists(_PROC / "self/ns/time")  # Linux has it since 5.6


def _read_stat(process: str) -> tuple[int, str, int, int]:
    """The number, state, number of threads and start of a process."""
    text = (_PROC / process / "stat").read_text(errors="replace")
    # The name of the program stands in parentheses, and may hold any character.
    number, _, rest = text.partition(" ")
    fields = rest.rpartition(")")[2].split()
    try:
        return int(number), fields[0], int(fields[17]), int(fields[19])
    except IndexError as error:
        raise ValueError(text) from error
