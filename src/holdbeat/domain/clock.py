"""The only module that reads a clock. Everything else is handed the time.

Instants are timezone-aware UTC datetimes cut to whole milliseconds, so that what was written to a store, put
into JSON and read back compares equal to what was meant.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_millis(instant: datetime) -> datetime:
    """The same instant in UTC, cut to milliseconds."""
    if instant.tzinfo is not UTC:
        instant = instant.astimezone(UTC)
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def iso(instant: datetime) -> str:
    """The one written form of an instant: `2026-01-31T09:30:00.000Z`."""
    if instant.tzinfo is not UTC:
        instant = instant.astimezone(UTC)
    return instant.isoformat(timespec="milliseconds")[:-6] + "Z"


def from_iso(text: str, zone: tzinfo = UTC) -> datetime:
    """Reads an ISO-8601 instant; one without an offset is wall time in `zone`."""
    instant = datetime.fromisoformat(text)
    return to_millis(instant if instant.tzinfo else instant.replace(tzinfo=zone))


def seconds(amount: float) -> timedelta:
    return timedelta(seconds=amount)


class Clock(Protocol):
    """Wall time for what is written down, monotonic time for deadlines."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's own clocks."""

    _last = (0, EPOCH)
    """The last instant and its milliseconds, kept because many callers ask within one millisecond."""

    def now(self) -> datetime:
        millis = time.time_ns() // 1_000_000
        last = SystemClock._last
        if last[0] != millis:
            SystemClock._last = last = millis, EPOCH + timedelta(milliseconds=millis)
        return last[1]

    monotonic = staticmethod(time.monotonic)


class OffsetClock:
    """Follows another machine's wall clock from samples; between them it runs on the local monotonic clock."""

    def __init__(self) -> None:
        self._offset_s: float | None = None

    def sample(self, remote: datetime, *, asked: float, answered: float) -> None:
        """Takes note that the remote clock read `remote` between two local monotonic readings."""
        self._offset_s = (remote - EPOCH).total_seconds() - (asked + answered) / 2

    def now(self) -> datetime:
        if self._offset_s is None:
            return SystemClock().now()
        return to_millis(EPOCH + timedelta(seconds=self._offset_s + time.monotonic()))

    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock in the test's hand: it moves only when told to."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._lock = threading.Lock()
        self._now = to_millis(start)
        self._monotonic = 1000.0

    def now(self) -> datetime:
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic

    def advance(self, amount_s: float) -> datetime:
        """Lets time pass on both clocks."""
        with self._lock:
            self._now = to_millis(self._now + timedelta(seconds=amount_s))
            self._monotonic += amount_s
            return self._now

    def jump(self, amount_s: float) -> datetime:
        """Moves the wall clock alone, as an operator or NTP would."""
        with self._lock:
            self._now = to_millis(self._now + timedelta(seconds=amount_s))
            return self._now
