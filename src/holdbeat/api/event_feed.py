"""The feed of Events: one reader of the log for any number of listeners.

Guards API-04 under load: the newest events are kept once, already written as they are sent; a listener is nothing but
a place in them. Whoever is too slow, or comes back after a while, reads from the store what has passed by, so a
listener costs no memory of its own and loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from itertools import islice
from typing import Any

from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.views import event_json
from holdbeat.operations.system import place_of
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.event_log import LoggedEvent, latest_cursor, read_events
from holdbeat.store.topics import Topic

log = logging.getLogger("holdbeat.api")

PAGE = 500
KEPT = 5000
"""Events that are kept for listeners; at five events a job this is the last second or two of a busy server."""
POLL_S = 1.0
GATHER_S = 0.02
GATHER_MAX_S = 0.5
GATHER_S_PER_LISTENER = 0.0005
"""Events of this long go out together: 500 listeners cannot be woken for each of 2,000 events a second."""
HEARTBEAT_S = 15.0


class _Entry:
    __slots__ = ("cursor", "event", "text")

    def __init__(self, logged: LoggedEvent) -> None:
        self.cursor = logged.cursor
        self.event = logged.event
        self.text = sse_text(logged.cursor, logged.event.name, event_json(logged.event))


class EventFeed:
    def __init__(self, store: PersistenceAdapter) -> None:
        self._store = store
        self._entries: deque[_Entry] = deque()
        self._first = 0
        """The number of the oldest entry kept; numbers only grow."""
        self._numbers: dict[str, int] = {}
        self._head = ""
        """The cursor of the newest event read."""
        self._new_events = asyncio.Event()
        self._woken = asyncio.Event()
        self._closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._unsubscribe: Any = None
        self._listeners = 0
        self._catching_up = asyncio.Semaphore(1)
        """Listeners that are behind read one after another: other clients read beside them."""
        self._texts: dict[tuple[int, int, frozenset[str] | None, str | None], bytes] = {}
        """What listeners with the same filter at the same place get: written once for all of them."""

    # --- the reader ---------------------------------------------------------------------------------------

    async def _ensure_reading(self) -> None:
        """Begins to read with the first listener: a server that nobody listens to reads nothing."""
        async with self._starting:
            if self._task is not None:
                return
            self._head = await self._store.read(latest_cursor)
            self._numbers[self._head] = self._first - 1
            self._unsubscribe = self._store.on_topics(asyncio.get_running_loop(), {Topic.EVENTS}, self._woken.set)
            self._task = asyncio.create_task(self._read_on(), name="holdbeat-event-feed")

    async def _read_on(self) -> None:
        while not self._closed.is_set():
            try:
                events = await self._store.read(read_events, self._head, limit=PAGE)
            except HoldbeatError as error:
                log.warning("the event feed cannot read just now: %s", error)
                events = []
            if events:
                self._take(events)
            if len(events) < PAGE:
                await asyncio.sleep(min(GATHER_MAX_S, GATHER_S + self._listeners * GATHER_S_PER_LISTENER))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await self._woken.wait()
                self._woken.clear()

    def _take(self, events: Sequence[LoggedEvent]) -> None:
        self._texts.clear()
        for logged in events:
            self._numbers[logged.cursor] = self._first + len(self._entries)
            self._entries.append(_Entry(logged))
        while len(self._entries) > KEPT:
            del self._numbers[self._entries.popleft().cursor]
            self._first += 1
        self._head = events[-1].cursor
        new_events, self._new_events = self._new_events, asyncio.Event()
        new_events.set()

    async def close(self) -> None:
        """Ends the reader and every listener's stream."""
        self._closed.set()
        self._new_events.set()
        self._woken.set()
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    # --- listeners ----------------------------------------------------------------------------------------

    async def listen(
        self, after: str | None, *, names: frozenset[str] | None = None, job_id: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The text of an event stream from after a cursor (None: from now on; 0: from the beginning), until closed."""
        await self._ensure_reading()
        self._listeners += 1
        try:
            async for text in self._texts_from(self._head if after is None else after, names, job_id):
                yield text
        finally:
            self._listeners -= 1

    async def _texts_from(
        self, place: str, names: frozenset[str] | None, job_id: str | None
    ) -> AsyncGenerator[bytes, None]:
        # Who is cut off before the first event must know where to go on, too.
        yield f": holdbeat events\nid: {place}\n\n".encode()
        while not self._closed.is_set():
            new_events = self._new_events
            number = self._first + len(self._entries) if place == self._head else self._numbers.get(place, -2) + 1
            if number >= self._first:
                text, reached = self._kept_from(number, names, job_id)
                if reached is not None:
                    place = reached
                    if text:
                        yield text
                    continue
            else:
                async with self._catching_up:
                    passed = await self._store.read_for_client(read_events, place_of(place), limit=PAGE)
                if passed:
                    place = passed[-1].cursor
                    entries = [_Entry(logged) for logged in passed]
                    text = b"".join(entry.text for entry in entries if _wanted(entry, names, job_id))
                    if text:
                        yield text
                    continue
                # Nothing is behind this place: it is where the reader will be, whatever it is called.
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await new_events.wait()
            except TimeoutError:
                yield f": still here\nid: {place}\n\n".encode()

    def _kept_from(self, number: int, names: frozenset[str] | None, job_id: str | None) -> tuple[bytes, str | None]:
        """The text of the entries from a number on, and the cursor of the last of them; None if there are none."""
        start = number - self._first
        count = min(PAGE, len(self._entries) - start)
        if count <= 0:
            return b"", None
        key = (number, count, names, job_id)
        text = self._texts.get(key)
        if text is None:
            fresh = islice(self._entries, start, start + count)
            text = b"".join(entry.text for entry in fresh if _wanted(entry, names, job_id))
            self._texts[key] = text
        return text, self._entries[start + count - 1].cursor


def _wanted(entry: _Entry, names: frozenset[str] | None, job_id: str | None) -> bool:
    return (names is None or entry.event.name in names) and (job_id is None or entry.event.job_id == job_id)


def sse_text(cursor: str, name: str, data: Any) -> bytes:
    """One message of an event stream. JSON has no line breaks of its own, so one data line is enough."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"id: {cursor}\nevent: {name}\ndata: {text}\n\n".encode("utf-8", "replace")
