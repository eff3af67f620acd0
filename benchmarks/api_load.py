"""The callers of the API benchmark, in a process of their own and cheap enough that the server is what limits them.

`post` sends one written request over and over on each of many connections. `listen` opens many event streams and
counts what arrives. Both print one line of JSON; nothing of Holdbeat is loaded here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

WARM_UP_S = 0.5
ENDED = b"\nevent: run.ended\n"
ANY = b"\nevent: "
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """The time that a process has spent on a processor so far, with the kernel's work for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def share(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


# --- requests ---------------------------------------------------------------------------------------------


class Caller(asyncio.Protocol):
    """One connection: the next request goes out when the answer to the last one is complete."""

    def __init__(self, request: bytes, took: list[float]) -> None:
        self._request = request
        self._took = took
        self._buffer = b""
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None
        self.refused = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.send()

    def send(self) -> None:
        assert self._transport is not None
        self._sent = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._buffer.find(b"content-length: ", 0, head) + 16
        if len(self._buffer) < head + 4 + int(self._buffer[at : self._buffer.index(b"\r", at)]):
            return
        self.refused += not self._buffer.startswith(b"HTTP/1.1 201")
        self._buffer = b""
        self._took.append(time.perf_counter() - self._sent)
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        self.refused += self._buffer != b""

    def close(self) -> None:
        assert self._transport is not None
        self._transport.abort()


async def post(path: str, port: int, pid: int, connections: int, seconds: float) -> dict[str, Any]:
    """Requests per second, how long they took, and the server's CPU time for each."""
    body = b'{"type":"noop","params":{}}'
    request = (
        b"POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % (path.encode(), port, len(body))
    ) + body
    took: list[float] = []
    loop = asyncio.get_running_loop()
    callers = []
    for _ in range(connections):
        _, caller = await loop.create_connection(lambda: Caller(request, took), "127.0.0.1", port)
        callers.append(caller)
    await asyncio.sleep(WARM_UP_S)
    took.clear()
    begin, begin_cpu_s, own_cpu_s = time.perf_counter(), cpu_s(pid), time.process_time()
    await asyncio.sleep(seconds)
    elapsed_s, used_s, own_s = time.perf_counter() - begin, cpu_s(pid) - begin_cpu_s, time.process_time() - own_cpu_s
    result = sorted(took)
    for caller in callers:
        caller.close()
    if not result or any(caller.refused for caller in callers):
        raise RuntimeError("the server refused requests, or answered none")
    return {
        "per_s": len(result) / elapsed_s,
        "p50_ms": share(result, 0.5) * 1000,
        "p99_ms": share(result, 0.99) * 1000,
        "cpu_us": used_s / len(result) * 1e6,
        "caller_cpu_us": own_s / len(result) * 1e6,
    }


# --- event streams ----------------------------------------------------------------------------------------


class Listener(asyncio.Protocol):
    """One stream: how many events had arrived when. The first one keeps the text, to know when each thing happened."""

    def __init__(self, path: str, port: int, jobs: int, keeps: bool) -> None:
        self._jobs = jobs
        self._request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n\r\n".encode()
        self._tail = b""
        self._parts: list[bytes] | None = [] if keeps else None
        self.has_begun = asyncio.Event()
        self.has_all = asyncio.Event()
        self.ended = 0
        self.total = 0
        self.arrivals: list[tuple[float, int]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if b": holdbeat events" in data:
            self.has_begun.set()
        if self._parts is not None:
            self._parts.append(data)
        text = self._tail + data
        ended = text.count(ENDED)
        # Names that lie across two reads are counted with the second; those counted already are not in the tail.
        self.total += text.count(ANY) - self._tail.count(ANY)
        self._tail = text[-(len(ENDED) - 1) :]
        if ended:
            self.ended += ended
            self.arrivals.append((time.time(), self.ended))
            if self.ended >= self._jobs:
                self.has_all.set()

    def happened(self) -> list[float]:
        """When the runs ended, in the order of the stream."""
        collected = []
        for message in b"".join(self._parts or []).split(b"\n\n"):
            if ENDED in b"\n" + message:
                at = message.index(b'"at":"') + 6
                collected.append(datetime.fromisoformat(message[at : message.index(b'"', at)].decode()).timestamp())
        return collected


async def listen(port: int, listeners: int, jobs: int, timeout_s: float) -> dict[str, Any]:
    """Whether each listener saw the end of each run, and how late."""
    loop = asyncio.get_running_loop()
    streams: list[Listener] = []
    for number in range(listeners):
        _, stream = await loop.create_connection(
            lambda keeps=number == 0: Listener("/api/events", port, jobs, keeps),  # type: ignore[misc]
            "127.0.0.1",
            port,
        )
        streams.append(stream)
        # One after the other: a key that opens many at the same instant is answered 429.
        async with asyncio.timeout(timeout_s):
            await stream.has_begun.wait()
    print("listening", flush=True)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            for stream in streams:
                await stream.has_all.wait()
    happened = streams[0].happened()
    lags = []
    for stream in streams:
        for (_, before), (at, _) in pairwise([(0.0, 0), *stream.arrivals]):
            # Of each delivery the oldest: nothing that came with it was later.
            if before < len(happened):
                lags.append(at - happened[before])
    lags.sort()
    return {
        "all_seen": all(stream.ended == jobs for stream in streams) and len({s.total for s in streams}) == 1,
        "events": streams[0].total,
        "finished_per_s": (len(happened) - 1) / (max(happened) - min(happened)) if len(happened) > 1 else 0.0,
        "lag_p50_s": share(lags, 0.5),
        "lag_max_s": share(lags, 1.0),
        "caller_cpu_s": time.process_time(),
    }


def main(argv: list[str]) -> int:
    if argv[0] == "post":
        port, pid, connections, seconds = map(float, argv[2:])
        figures = asyncio.run(post(argv[1], int(port), int(pid), int(connections), seconds))
    else:
        port, listeners, jobs, timeout_s = map(float, argv[1:])
        figures = asyncio.run(listen(int(port), int(listeners), int(jobs), timeout_s))
    print(json.dumps(figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
