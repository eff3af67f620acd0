"""One request to the upstream of a gate, streamed both ways.

The address comes from the operator's settings, so it is not judged as the targets of jobs are. Each request has a
connection of its own, which is closed when the block has ended. If the block ends before the answer does, the upstream
may still work on the request: it sees that nobody reads any more, and has `settle_s` to close the connection on its
side.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import httpcore2
import httpx2

from holdbeat.handlers.http_exchange import default_ssl_context

CONNECT_S = 10.0
READ_BYTES = 65_536


class UpstreamFailure(Exception):
    """The upstream did not answer as it should. `is_late` if it was silent for too long."""

    def __init__(self, reason: str, *, is_late: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_late = is_late


class Upstream:
    """The upstream to which the requests of one gate go."""

    def __init__(self, address: str, timeout_s: float, settle_s: float) -> None:
        url = httpx2.URL(address)
        self._prefix = url.raw_path.rstrip(b"/")
        self._url = url
        self.host = url.netloc
        self._timeout_s = timeout_s
        self._settle_s = settle_s

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        target: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        content: AsyncIterator[bytes] | None,
    ) -> AsyncIterator[httpcore2.Response]:
        """The answer, whose body the block reads to its end. `target` is path and query behind the upstream's address.

        The connection is closed when this returns or raises. A second cancellation cuts `settle_s` short.
        """
        url = httpcore2.URL(
            scheme=self._url.raw_scheme, host=self._url.raw_host, port=self._url.port, target=self._prefix + target
        )
        tls = default_ssl_context() if self._url.scheme == "https" else None
        timeout = {"connect": CONNECT_S, "read": self._timeout_s, "write": self._timeout_s}
        network = _Network(self._settle_s)
        with self._failures():
            async with (
                httpcore2.AsyncHTTPConnection(url.origin, ssl_context=tls, network_backend=network) as connection,
                connection.stream(
                    method, url, headers=headers, content=content, extensions={"timeout": timeout}
                ) as response,
            ):
                yield response
                network.settle_s = 0.0  # the answer is whole, so the upstream has ended

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise UpstreamFailure(f"it cannot be reached: {error or type(error).__name__}") from error
        except (httpcore2.ReadTimeout, httpcore2.WriteTimeout) as error:
            raise UpstreamFailure(f"it sent nothing for {self._timeout_s:g} s", is_late=True) from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
            raise UpstreamFailure(f"the connection broke: {error or type(error).__name__}") from error


class _Network(httpcore2.AsyncNetworkBackend):
    """Opens the connection of one request."""

    def __init__(self, settle_s: float) -> None:
        self._backend = httpcore2.AnyIOBackend()
        self.settle_s = settle_s

    async def connect_tcp(self, *arguments: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        return _Connection(await self._backend.connect_tcp(*arguments, **options), self)


class _Connection(httpcore2.AsyncNetworkStream):
    """A connection that gives its upstream time to end before it is closed."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, network: _Network) -> None:
        self._stream = stream
        self._network = network

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def start_tls(self, *arguments: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        try:
            return _Connection(await self._stream.start_tls(*arguments, **options), self._network)
        except BaseException:
            await self._stream.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    async def aclose(self) -> None:
        settle_s, self._network.settle_s = self._network.settle_s, 0.0
        try:
            if settle_s:
                await self._settle(settle_s)
        finally:
            await self._stream.aclose()

    async def _settle(self, settle_s: float) -> None:
        """Says that nobody listens, and waits until the upstream has closed its side: then it has ended for certain.

        Only our direction is closed: after a full close nothing would tell when the upstream has noticed it.
        """
        with contextlib.suppress(TimeoutError, OSError, httpcore2.NetworkError):
            async with asyncio.timeout(settle_s):
                self._stream.get_extra_info("socket").shutdown(socket.SHUT_WR)
                while await self._stream.read(READ_BYTES):
                    pass
