"""The circuit breaker: a receiver that keeps failing is left alone for a while (WEB-03).

The invariant: after five failures in a row nobody calls the receiver's URL for 30 seconds, and then exactly one call at
a time tries whether it is back. Other receivers, also on the same host, are not affected. Being told to wait costs a
Delivery no attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

FAILURES_TO_OPEN: Final = 5
OPEN_S: Final = 30.0
MAX_RECEIVERS: Final = 1024


@dataclass(slots=True)
class _Receiver:
    failures: int
    open_until: datetime
    """Nobody may call before this time; in the past for a receiver that is merely under suspicion."""
    touched_at: datetime


class CircuitBreaker:
    """Remembers only receivers that failed lately. Time is handed in; it belongs to one event loop."""

    def __init__(self) -> None:
        self._receivers: dict[str, _Receiver] = {}

    def wait_until(self, url: str, *, now: datetime) -> datetime | None:
        """None if the receiver may be called now, else when to ask again.

        Once the wait is over, the first who asks is the probe and holds the others off for as long again; so
        a probe that never reports back blocks nobody for ever.
        """
        state = self._receivers.get(url)
        if state is None or state.failures < FAILURES_TO_OPEN:
            return None
        if now < state.open_until:
            return state.open_until
        state.open_until = now + timedelta(seconds=OPEN_S)
        state.touched_at = now
        return None

    def record(self, url: str, *, failed: bool, now: datetime) -> None:
        """Takes note of how a call to the URL ended."""
        if not failed:
            self._receivers.pop(url, None)
            return
        state = self._receivers.setdefault(url, _Receiver(0, now, now))
        state.failures += 1
        state.touched_at = now
        if state.failures >= FAILURES_TO_OPEN:
            state.open_until = now + timedelta(seconds=OPEN_S)
        if len(self._receivers) > MAX_RECEIVERS:
            oldest = min(self._receivers, key=lambda known: self._receivers[known].touched_at)
            del self._receivers[oldest]
