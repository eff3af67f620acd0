"""One request to the upstream of a gate, streamed both ways.

The address comes from the operator's settings, so it is not judged as the targets of jobs are. Each request has a
connection of its own: when the block ends, or is cancelled, it is closed, and the upstream sees that nobody listens.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import lru_cache

import httpcore2
import httpx2

CONNECT_S = 10.0


class UpstreamFailure(Exception):
    """The upstream did not answer as it should. `is_late` if it was silent for too long."""

    def __init__(self, reason: str, *, is_late: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_late = is_late


class Upstream:
    """Where the requests of one gate go."""

    def __init__(self, address: str, timeout_s: float) -> None:
        url = httpx2.URL(address)
        self._prefix = url.raw_path.rstrip(b"/")
        self._url = url
        self.host = url.netloc
        self._timeout_s = timeout_s

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        target: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        content: AsyncIterator[bytes] | None,
    ) -> AsyncIterator[httpcore2.Response]:
        """The answer, whose body is read with `chunks`. `target` is path and query behind the upstream's address."""
        url = httpcore2.URL(
            scheme=self._url.raw_scheme, host=self._url.raw_host, port=self._url.port, target=self._prefix + target
        )
        tls = _tls() if self._url.scheme == "https" else None
        timeout = {"connect": CONNECT_S, "read": self._timeout_s, "write": self._timeout_s}
        with self._failures():
            async with (
                httpcore2.AsyncHTTPConnection(url.origin, ssl_context=tls) as connection,
                connection.stream(
                    method, url, headers=headers, content=content, extensions={"timeout": timeout}
                ) as response,
            ):
                yield response

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


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
