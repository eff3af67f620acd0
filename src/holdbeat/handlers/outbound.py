"""Calls to the outside: one call, one connection, one deadline, one vetted address (SEC-04, GOV-10, WEB-03).

The invariant: the address that was judged is the address that is connected to. Names are resolved here, every
answer is judged, and the socket is opened to a judged address, never to a name; a resolver that answers
differently the next time gains nothing.

The protocol layer of httpx2 is used without its client: a client would keep cookies between calls that have
nothing to do with each other, read proxies from the environment, and log URLs with the secrets in them.
Connections are not kept: one that died while idle would cost a delivery an attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import httpcore2
import httpx2

from holdbeat.domain.address import OutboundPolicy, check_url, judge, spelled_address
from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import storable_text
from holdbeat.handlers.response_body import BodyReader, Unreadable

FailureKind = Literal["timeout", "refused_target", "connect", "protocol", "tls"]

MAX_HEADER_BYTES = 64 * 1024
MAX_LOOKUPS = 256
"""As many as calls are made at once: with fewer, names that nobody resolves would hold up calls to other hosts."""
MAX_ADDRESSES = 8
USER_AGENT = "holdbeat"


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


class _VettedBackend(httpcore2.AsyncNetworkBackend):
    """Opens the socket of one call, to a judged address only, and sees to it that it is closed."""

    def __init__(self, policy: OutboundPolicy, resolver: Resolver) -> None:
        self._policy = policy
        self._resolver = resolver
        self._sockets = httpcore2.AnyIOBackend()
        self._opened: httpcore2.AsyncNetworkStream | None = None

    async def aclose(self) -> None:
        # A deadline that falls into the TLS handshake leaves a socket that no layer above knows of.
        if self._opened is not None:
            await self._opened.aclose()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self._vetted(host, port)
        # A dead first address must leave time for the others.
        share_s = None if timeout is None else timeout / len(addresses)
        error: Exception | None = None
        for address in addresses:
            try:
                self._opened = await self._sockets.connect_tcp(address, port, share_s, local_address, socket_options)
                return self._opened
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as caught:
                error = caught
        assert error is not None
        raise error

    async def _vetted(self, host: str, port: int) -> Sequence[str]:
        try:
            literal = spelled_address(host)
        except Invalid as refusal:
            raise OutboundFailure(refusal.detail, "refused_target") from None
        if literal is not None:
            addresses: Sequence[str] = [str(literal)]
        else:
            try:
                addresses = await self._resolver.resolve(host, port)
            except (OSError, UnicodeError) as error:
                raise OutboundFailure(f"The host {host} could not be resolved: {error}.", "connect") from error
        name = host if literal is None else None
        verdicts = {ip: judge(ip, allow=self._policy, host=name, port=port) for ip in addresses}
        vetted = [ip for ip, refusal in verdicts.items() if refusal is None]
        if vetted:
            return vetted[:MAX_ADDRESSES]
        if not addresses:
            raise OutboundFailure(f"The host {host} has no address.", "connect")
        reason = next(refusal for refusal in verdicts.values() if refusal is not None)
        raise OutboundFailure(f"The host {host} may not be called: {reason}.", "refused_target")


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
        loop = asyncio.get_running_loop()
        started = loop.time()
        await self._review_policy()
        try:
            async with asyncio.timeout(deadline_s):
                check_url(url, self.policy)
                return await self._exchange(
                    method, httpx2.URL(url), headers, content, deadline_s, max_body_bytes, started
                )
        except Invalid as refusal:
            raise OutboundFailure(refusal.detail, "refused_target") from None
        except httpx2.InvalidURL as error:
            raise OutboundFailure(f"The URL cannot be called: {error}", "refused_target") from None
        except (TimeoutError, httpcore2.TimeoutException):
            raise OutboundFailure(f"No complete answer within {deadline_s:g} s.", "timeout") from None
        except Unreadable as error:
            raise OutboundFailure(str(error), "protocol") from None
        except httpcore2.ProtocolError as error:
            raise OutboundFailure(f"The answer is not valid HTTP: {error}", "protocol") from error
        except (httpcore2.NetworkError, OSError) as error:
            tls = _tls_cause(error)
            if tls is not None:
                raise OutboundFailure(f"TLS failed: {tls}", "tls") from error
            raise OutboundFailure(f"The connection failed: {error or type(error).__name__}", "connect") from error

    async def aclose(self) -> None:
        """Refuses further calls. Those under way end by their own deadline or by cancellation."""
        self._closed = True

    async def _exchange(
        self,
        method: str,
        url: httpx2.URL,
        headers: Mapping[str, str],
        content: bytes | None,
        deadline_s: float,
        max_body_bytes: int,
        started: float,
    ) -> Answer:
        target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        backend = _VettedBackend(self.policy, self._resolver)
        connection = httpcore2.AsyncHTTPConnection(
            target.origin,
            ssl_context=self._tls() if url.scheme == "https" else None,
            network_backend=backend,
        )
        limits = {"connect": deadline_s, "read": deadline_s, "write": deadline_s}
        async with (
            contextlib.aclosing(backend),
            connection,
            connection.stream(
                method,
                target,
                headers=_request_headers(url, headers),
                content=content,
                extensions={"timeout": limits},
            ) as response,
        ):
            if not response.extensions["http_version"].startswith(b"HTTP/1."):
                raise Unreadable("The answer is not HTTP/1.")
            if sum(len(name) + len(value) for name, value in response.headers) > MAX_HEADER_BYTES:
                raise Unreadable(f"The headers of the answer exceed {MAX_HEADER_BYTES} bytes.")
            answer_headers = _answer_headers(response.headers)
            reader = BodyReader(answer_headers, max_body_bytes)
            async with contextlib.aclosing(response.aiter_stream()) as chunks:
                async for chunk in chunks:
                    reader.feed(chunk)
                    if reader.is_full:
                        break
            body, note = reader.finish()
            return Answer(
                status_code=response.status,
                headers=answer_headers,
                body=body,
                truncated=reader.truncated,
                duration_s=round(asyncio.get_running_loop().time() - started, 6),
                note=note,
            )

    def _tls(self) -> ssl.SSLContext:
        # Reading the machine's certificates takes a while: once, and only for the first https call.
        if self._ssl_context is None:
            self._ssl_context = httpx2.create_ssl_context()
        return self._ssl_context


def _request_headers(url: httpx2.URL, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    defaults = {"host": url.netloc, "user-agent": USER_AGENT.encode(), "accept": b"*/*"}
    names = {name.lower() for name in headers}
    lines = [(name.encode(), value) for name, value in defaults.items() if name not in names]
    lines += [(name.encode("ascii"), value.encode("utf-8")) for name, value in headers.items()]
    if "accept-encoding" not in names:
        lines.append((b"accept-encoding", b"gzip"))
    lines.append((b"connection", b"close"))
    return lines


def _answer_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in raw:
        key = storable_text(name.decode("latin-1").lower())
        text = storable_text(value.decode("utf-8", "replace"))
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _tls_cause(error: BaseException | None) -> ssl.SSLError | None:
    """The TLS error behind this one, if any."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__
    return None
