"""This process's Worker record, under an id that is never used again (host-pid-random), and what the process uses."""

from __future__ import annotations

import os
import resource
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

from holdbeat.domain.worker import Usage, Worker, WorkerKind
from holdbeat.store.process_identity import this_process

_STATM = Path("/proc/self/statm")


class ProcessUsage:
    """Measures what was used since the last measurement. Guards the heartbeat: what cannot be read is left out."""

    __slots__ = ("_cpu_s", "_measured_at_s")

    def __init__(self) -> None:
        self._cpu_s = 0.0
        self._measured_at_s: float | None = None

    def measure(self, now_s: float) -> Usage:
        """The usage by now, which is an instant of the monotonic clock; without a share of the processor at first."""
        spent = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = spent.ru_utime + spent.ru_stime
        before_s, self._measured_at_s = self._measured_at_s, now_s
        used_s, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        share = used_s / (now_s - before_s) if before_s is not None and now_s > before_s else None
        return Usage(memory_bytes(), None if share is None else round(share, 3))


def memory_bytes() -> int | None:
    """The memory that this process uses now."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None  # a system without /proc


def this_worker(
    kind: str, *, slots: int, http_slots: int, types: Sequence[str], resources: Sequence[str] | None, version: str
) -> Worker:
    """This process as a worker, under a fresh id."""
    host = socket.gethostname()
    process = this_process()
    readable = "".join(c if c.isalnum() or c in "-." else "-" for c in host)[:40]
    return Worker(
        id=f"{readable}-{os.getpid()}-{secrets.token_hex(3)}",
        kind=WorkerKind(kind),
        host=host,
        pid=os.getpid(),
        slots=slots,
        http_slots=http_slots,
        types=tuple(types),
        resources=None if resources is None else tuple(resources),
        version=version,
        memory_bytes=memory_bytes(),
        machine=process.machine if process else None,
        process_started=process.started if process else None,
    )
