"""The body of a request that is passed on while it still arrives, and the notice that its client has gone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from starlette.types import Receive

from holdbeat.domain.errors import TooLarge

AHEAD_BYTES = 1_048_576
"""So much of a body is taken before anybody needs it. Bodies that fit are whole before they take a slot."""


class StreamedBody:
    """Reads from the client as far as `AHEAD_BYTES` ahead of whoever passes the body on."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._parts: deque[bytes] = deque()
        self._ahead = 0
        self._size = 0
        self._is_whole = False
        self._error: TooLarge | None = None
        self._changed = asyncio.Condition()
        self.gone = asyncio.Event()
        """Set when the client has gone before it was answered."""
        self.is_answered = False
        """Whether the last byte of the answer is on its way: what the server says of the client then means nothing."""

    async def read(self) -> None:
        """Reads until the client has gone; run it as a task beside the request."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                if not self.is_answered:
                    self.gone.set()
                return
            part: bytes = message.get("body", b"")
            async with self._changed:
                self._size += len(part)
                if self._size > self._limit:
                    self._error = TooLarge(
                        f"The body is larger than {self._limit:,} bytes, which this gate passes on (max_body_mb).",
                        code="body_too_large",
                    )
                elif part:
                    self._parts.append(part)
                    self._ahead += len(part)
                self._is_whole = not message.get("more_body")
                self._changed.notify_all()
                await self._changed.wait_for(lambda: self._ahead < AHEAD_BYTES and self._error is None)

    async def begun(self) -> bool:
        """Waits until the body is whole or `AHEAD_BYTES` of it are there; whether there is a body at all."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._is_whole or self._ahead >= AHEAD_BYTES or self._error is not None
            )
            if self._error is not None:
                raise self._error
            return self._size > 0

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, as it arrives."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: bool(self._parts) or self._is_whole or self._error is not None)
                if self._error is not None:
                    raise self._error
                if not self._parts:
                    return
                part = self._parts.popleft()
                self._ahead -= len(part)
                self._changed.notify_all()
            yield part
