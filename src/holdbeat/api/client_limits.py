"""Limits on what one key may ask for at the same time (SEC-08).

Guards the other clients: the reads of one key wait for each other before they reach the store, so a key with many slow
reads occupies one of the store's connections for clients, and the reads of other keys go past the ones that wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from holdbeat.domain.errors import TooManyRequests

SEARCHES_AT_ONCE = 1
"""Reads of a list or of figures: their cost depends on the filter."""
LOOKUPS_AT_ONCE = 8
"""Reads by an id."""
WAITING_MAX = 64
STREAMS_MAX = 512


class ClientLimits:
    """Counts the reads and the open streams of each key; all requests without a key count as one."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str | None, bool], asyncio.Semaphore] = {}
        self._reads: Counter[tuple[str | None, bool]] = Counter()
        self._streams: Counter[str | None] = Counter()

    @asynccontextmanager
    async def read(self, key_id: str | None, *, is_search: bool) -> AsyncIterator[None]:
        """Waits for a slot of this key; refuses the read if too many wait already."""
        kind = key_id, is_search
        at_once = SEARCHES_AT_ONCE if is_search else LOOKUPS_AT_ONCE
        if self._reads[kind] >= at_once + WAITING_MAX:
            raise TooManyRequests(
                f"{WAITING_MAX} reads of this key wait already. Wait for their answers, then try again.",
                code="too_many_reads",
            )
        slots = self._slots.setdefault(kind, asyncio.Semaphore(at_once))
        self._reads[kind] += 1
        try:
            async with slots:
                yield
        finally:
            self._reads[kind] -= 1
            if not self._reads[kind]:
                del self._reads[kind], self._slots[kind]

    def check_streams(self, key_id: str | None) -> None:
        """Refuses a further stream of a key that has many open."""
        if self._streams[key_id] >= STREAMS_MAX:
            raise TooManyRequests(
                f"This key has {STREAMS_MAX} streams open, which is the most. Close one, or use another key.",
                code="too_many_streams",
            )

    async def counted(self, key_id: str | None, messages: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """The messages of a stream, which counts as open until they end."""
        if self._streams[key_id] >= STREAMS_MAX:
            return  # Others were opened between the check and now.
        self._streams[key_id] += 1
        try:
            async with aclosing(messages):
                async for message in messages:
                    yield message
        finally:
            self._streams[key_id] -= 1
            if not self._streams[key_id]:
                del self._streams[key_id]
