"""How much memory and processor time this process uses, for the page of the workers."""

from __future__ import annotations

import resource
from pathlib import Path

from holdbeat.domain.worker import Usage

_STATM = Path("/proc/self/statm")


class ProcessUsage:
    """Measures what was used since the last look. Guards the heartbeat: what cannot be read is left out."""

    __slots__ = ("_cpu_s", "_looked_at_s")

    def __init__(self) -> None:
        self._cpu_s = 0.0
        self._looked_at_s: float | None = None

    def look(self, now_s: float) -> Usage:
        """The usage by now, which is an instant of the monotonic clock; without a share of the processor at first."""
        spent = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = spent.ru_utime + spent.ru_stime
        before_s, self._looked_at_s = self._looked_at_s, now_s
        used_s, self._cpu_s = cpu_s - self._cpu_s, cpu_s
        share = used_s / (now_s - before_s) if before_s is not None and now_s > before_s else None
        return Usage(memory_bytes(), None if share is None else round(share, 3))


def memory_bytes() -> int | None:
    """What this process holds in memory now."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return None  # a system without /proc
