"""Calls to the outside: one call, one connection, one deadline, one vetted address (SEC-04, GOV-10, WEB-03).

The invariant: the address that was judged is the address that is connected to. Names are resolved here, every
answer is judged, and the socket is opened to a judged address, never to a name; a resolver that answers
differently the next time gains nothing.

The exchange itself is in `http_exchange.py`, which is loaded for the first call.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from holdbeat.domain.address import OutboundPolicy
from holdbeat.domain.params import storable_text

FailureKind = Literal["timeout", "refused_target", "connect", "protocol", "tls"]

MAX_LOOKUPS = 256
"""As many as calls are made at once: with fewer, names that nobody resolves would hold up calls to other hosts."""


class OutboundFailure(Exception):
    """A call that brought no answer. `reason` is a sentence for people, `kind` a word for programs."""

    def __init__(self, reason: str, kind: FailureKind) -> None:
        super().__init__(reason)
        self.reason = storable_text(reason)
        self.kind: FailureKind = kind

    def __reduce__(self) -> Any:
        return type(self), (self.reason, self.kind)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `body` is parsed JSON, text, or None; `note` says why a body was not kept."""

    status_code: int
    headers: dict[str, str]
    body: str | Any | None
    truncated: bool
    duration_s: float
    note: str | None = None


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes | None
    deadline_s: float
    max_body_bytes: int
    began: float
    """On the clock of the event loop."""


class Resolver(Protocol):
    """Turns a host name into addresses, most preferred first; raises OSError if it cannot."""

    async def resolve(self, host: str, port: int) -> Sequence[str]: ...


class SystemResolver:
    """The machine's resolver, asked in threads of its own.

    A lookup cannot be interrupted. In the loop's shared pool a few dead name servers would stop everything
    else that needs a thread, and would hold up the end of the process; hence own daemon threads, counted.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MAX_LOOKUPS)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()

        def finish(addresses: list[str] | None, error: Exception | None) -> None:
            # The place is free when the thread is done, not when the caller stopped waiting.
            self._free.release()
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(addresses or [])

        def look_up() -> None:
            addresses: list[str] | None = None
            error: Exception | None = None
            try:
                rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                addresses = list(dict.fromkeys(str(row[4][0]) for row in rows))
            except (OSError, UnicodeError) as caught:
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(finish, addresses, error)

        try:
            threading.Thread(target=look_up, name="holdbeat-resolve", daemon=True).start()
        except RuntimeError as error:  # the machine has no thread left
            self._free.release()
            raise OSError(str(error)) from error
        return await answer


class Outbound:
    """Makes calls under a policy. Any number may be under way at once; the caller limits them."""

    def __init__(
        self,
        policy: OutboundPolicy,
        *,
        resolver: Resolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.policy = policy
        self._resolver = resolver or SystemResolver()
        self._ssl_context = ssl_context
        self._closed = False

    async def _review_policy(self) -> None:
        """Called before each call: a policy that depends on others is looked up again here."""

    async def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        content: bytes | None,
        deadline_s: float,
        max_body_bytes: int,
    ) -> Answer:
        """Sends one request and reads the answer, all within `deadline_s`; raises OutboundFailure.

        Redirects are answers like any other. Of a body, `max_body_bytes` are kept, decoded; the rest is not
        read.
        """
        if self._closed:
            raise OutboundFailure("Outgoing calls have been shut down; try again later.", "connect")
        # Its libraries take 7 MB, which a worker without such jobs is spared.
        from holdbeat.handlers import http_exchange

        began = asyncio.get_running_loop().time()
        await self._review_policy()
        request = OutboundRequest(method, url, headers, content, deadline_s, max_body_bytes, began)
        return await http_exchange.exchange(request, self.policy, self._resolver, self._ssl_context)

    async def aclose(self) -> None:
        """Refuses further calls. Those under way end by their own deadline or by cancellation."""
        self._closed = True
