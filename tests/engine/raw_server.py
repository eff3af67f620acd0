"""A server on loopback that answers with whatever bytes a test wants, well-formed or not."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

TLS = Path(__file__).parent / "tls"

Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class RawServer:
    host: str
    port: int
    requests: list[bytes] = field(default_factory=list)
    """What was received, up to the end of the headers or of the announced body."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has closed its connection."""
    connected: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def url(self, path: str = "/", scheme: str = "http", host: str | None = None) -> str:
        return f"{scheme}://{host or self.host}:{self.port}{path}"


@contextlib.asynccontextmanager
async def serving(
    answer: bytes | Respond, *, host: str = "127.0.0.1", port: int = 0, certificate: str | None = None
) -> AsyncIterator[RawServer]:
    """Answers every connection with bytes, or lets a function write them."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / certificate)
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                server.connected.release()
                server.requests.append(await _request(reader))
                if isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    await answer(writer)
                await writer.drain()
        except asyncio.CancelledError:
            pass
        finally:
            server.gone.set()
            writer.close()
            tasks.discard(task)

    listener = await asyncio.start_server(handle, host, port, ssl=context)
    server = RawServer(host, listener.sockets[0].getsockname()[1])
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.split(b":")[1]))
    return head


def http(body: bytes, content_type: str | None = "text/plain", status: str = "200 OK", *lines: str) -> bytes:
    """A well-formed answer."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines]
    if content_type is not None:
        head.append(f"Content-Type: {content_type}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + body
