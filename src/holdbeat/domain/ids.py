"""Identifiers: UUIDv7 strings that sort by creation, strictly increasing within one process."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from holdbeat.domain.clock import EPOCH

_COUNTER_BITS = 12 + 14
"""12 bits of `rand_a` and the top 14 of `rand_b` count ids within one millisecond."""
_MILLISECOND = timedelta(milliseconds=1)


class IdSource:
    """Makes UUIDv7 ids from a time that is handed in.

    Ids made within one millisecond, or while the wall clock stands or goes back, still increase: the counter
    runs on from the last id, and a full counter borrows the next millisecond.
    """

    def __init__(self, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._random_bytes = random_bytes
        self._lock = threading.Lock()
        self._millis = 0
        self._counter = 0

    def new(self, now: datetime) -> str:
        end = self._random_bytes(6).hex()
        with self._lock:
            counter = self._next_counter((now - EPOCH) // _MILLISECOND)
            digits = f"{self._millis:012x}"
        return f"{digits[:8]}-{digits[8:]}-7{counter >> 14:03x}-{0x8000 | counter & 0x3FFF:x}-{end}"

    def many(self, now: datetime, count: int) -> list[str]:
        """`count` ids, each greater than all before it."""
        millis = (now - EPOCH) // _MILLISECOND
        ids: list[str] = []
        # One draw for all: asking the system for randomness costs more than the id.
        ends = self._random_bytes(6 * count).hex("-", 6).split("-")
        with self._lock:
            while len(ids) < count:
                counter = self._next_counter(millis)
                # As many as differ only in the low bits of the counter.
                done, low = len(ids), 0x8000 | counter & 0x3FFF
                run = min(count - done, 0xC000 - low)
                digits = f"{self._millis:012x}"
                front = f"{digits[:8]}-{digits[8:]}-7{counter >> 14:03x}-"
                ids += [f"{front}{n:x}-{end}" for n, end in enumerate(ends[done : done + run], low)]
                self._counter = counter + run - 1
        return ids

    def _next_counter(self, millis: int) -> int:
        """The counter of the next id, which is made in the millisecond `_millis`."""
        counter = self._counter + 1
        if millis > self._millis:
            self._millis = millis
            counter = 1 + (int.from_bytes(self._random_bytes(4), "big") >> (32 - (_COUNTER_BITS - 2)))
        elif counter >> _COUNTER_BITS:
            self._millis += 1
            counter = 0
        self._counter = counter
        return counter


def is_id(text: str) -> bool:
    """Whether `text` has the form of one of our ids (so that a name can be told from an id)."""
    return len(text) == 36 and text.count("-") == 4 and all(c in "0123456789abcdef-" for c in text)


def spread_of(key: str) -> float:
    """A number in [0, 1) that is always the same for one key, such as an id: jitter without a random number."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=6).digest()) / 2**48
