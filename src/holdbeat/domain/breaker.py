"""The circuit breaker: a host that keeps failing is left alone for a while (WEB-03).

The invariant: after five failures in a row nobody calls the host for 30 seconds, and then exactly one call at
a time tries whether it is back. Being told to wait costs a Delivery no attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

FAILURES_TO_OPEN: Final = 5
OPEN_S: Final = 30.0
MAX_HOSTS: Final = 1024


@dataclass(slots=True)
class _Host:
    failures: int
    open_until: datetime
    """Nobody may call before this time; in the past for a host that is merely under suspicion."""
    touched_at: datetime


class CircuitBreaker:
    """Remembers only hosts that failed lately. Time is handed in; it belongs to one event loop."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}

    def wait_until(self, host: str, *, now: datetime) -> datetime | None:
        """None if the host may be called now, else when to ask again.

        Once the wait is over, the first who asks is the probe and holds the others off for as long again; so
        a probe that never reports back blocks nobody for ever.
        """
        state = self._hosts.get(host)
        if state is None or state.failures < FAILURES_TO_OPEN:
            return None
        if now < state.open_until:
            return state.open_until
        state.open_until = now + timedelta(seconds=OPEN_S)
        state.touched_at = now
        return None

    def record(self, host: str, *, failed: bool, now: datetime) -> None:
        """Takes note of how a call to the host ended."""
        if not failed:
            self._hosts.pop(host, None)
            return
        state = self._hosts.setdefault(host, _Host(0, now, now))
        state.failures += 1
        state.touched_at = now
        if state.failures >= FAILURES_TO_OPEN:
            state.open_until = now + timedelta(seconds=OPEN_S)
        if len(self._hosts) > MAX_HOSTS:
            oldest = min(self._hosts, key=lambda name: self._hosts[name].touched_at)
            del self._hosts[oldest]
