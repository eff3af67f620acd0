"""One request over a connection of its own, to an address that was judged.

The protocol layer of httpx2 is used without its client: a client would keep cookies between calls that have
nothing to do with each other, read proxies from the environment, and log URLs with the secrets in them.
Connections are not kept: one that died while idle would cost a delivery an attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import httpcore2
import httpx2

from holdbeat.domain.address import OutboundPolicy, check_url, judge, spelled_address
from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import storable_text
from holdbeat.handlers.outbound import Answer, OutboundFailure, OutboundRequest, Resolver
from holdbeat.handlers.response_body import BodyReader, Unreadable

MAX_HEADER_BYTES = 64 * 1024
MAX_ADDRESSES = 8
USER_AGENT = "holdbeat"


@lru_cache(maxsize=1)
def default_ssl_context() -> ssl.SSLContext:
    """With the certificates of the machine, which take a while to read: once for all calls."""
    return httpx2.create_ssl_context()


async def exchange(
    request: OutboundRequest, policy: OutboundPolicy, resolver: Resolver, tls: ssl.SSLContext | None
) -> Answer:
    """Sends the request and reads the answer; raises OutboundFailure. `tls` is for https, None the default."""
    deadline_s = request.deadline_s
    try:
        async with asyncio.timeout(deadline_s):
            check_url(request.url, policy)
            return await _exchange(request, _VettedBackend(policy, resolver), tls)
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
        tls_error = _tls_cause(error)
        if tls_error is not None:
            raise OutboundFailure(f"TLS failed: {tls_error}", "tls") from error
        raise OutboundFailure(f"The connection failed: {error or type(error).__name__}", "connect") from error


async def _exchange(request: OutboundRequest, backend: _VettedBackend, tls: ssl.SSLContext | None) -> Answer:
    url = httpx2.URL(request.url)
    target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    ssl_context = (tls or default_ssl_context()) if url.scheme == "https" else None
    connection = httpcore2.AsyncHTTPConnection(target.origin, ssl_context=ssl_context, network_backend=backend)
    limits = dict.fromkeys(("connect", "read", "write"), request.deadline_s)
    async with (
        contextlib.aclosing(backend),
        connection,
        connection.stream(
            request.method,
            target,
            headers=_request_headers(url, request.headers),
            content=request.content,
            extensions={"timeout": limits},
        ) as response,
    ):
        if not response.extensions["http_version"].startswith(b"HTTP/1."):
            raise Unreadable("The answer is not HTTP/1.")
        if sum(len(name) + len(value) for name, value in response.headers) > MAX_HEADER_BYTES:
            raise Unreadable(f"The headers of the answer exceed {MAX_HEADER_BYTES} bytes.")
        answer_headers = _answer_headers(response.headers)
        reader = BodyReader(answer_headers, request.max_body_bytes)
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
            duration_s=round(asyncio.get_running_loop().time() - request.began, 6),
            note=note,
        )


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
