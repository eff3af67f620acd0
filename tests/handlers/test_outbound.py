"""Outgoing calls against hostile servers: one deadline, bounded memory, no surprises (GOV-10, WEB-03)."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from functools import cache

import pytest

from holdbeat.handlers.outbound import Outbound
from tests.engine.calling import (
    LOCAL,
    SilentResolver,
    answered,
    call,
    failed,
    failure,
)
from tests.engine.raw_server import Respond, http, serving


async def flood(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    for _ in range(16384):  # 1 GB, if anybody took it
        writer.write(piece)
        await writer.drain()


@cache
def packed_zeros() -> bytes:
    """64 MB that are 64 KB on the way."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()


async def bomb(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n")
    writer.write(packed_zeros())


@pytest.mark.rule("GOV-10")
@pytest.mark.asyncio
@pytest.mark.parametrize("attack", [flood, bomb])
async def test_an_endless_or_exploding_body_is_cut_with_flat_memory(attack: Respond) -> None:
    packed_zeros()  # ahead, because it takes longer than a busy machine leaves until the deadline
    async with serving(attack) as server:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        try:
            answer = await call(server.url(), max_body_bytes=100 * 1024, deadline_s=60)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert answer.truncated
    assert isinstance(answer.body, str)
    assert len(answer.body.encode()) <= 100 * 1024
    assert peak - before < 8 << 20


async def drip_headers(writer: asyncio.StreamWriter) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 10_000:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.02)


async def drip_body(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def informational_for_ever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def hang(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


@pytest.mark.rule("GOV-10", "WEB-03")
@pytest.mark.asyncio
@pytest.mark.parametrize("attack", [hang, drip_headers, drip_body, informational_for_ever])
async def test_one_deadline_covers_the_whole_call_however_slowly_it_drips(attack: Respond) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    caught = await failed(attack, deadline_s=0.2)
    assert (caught.kind, caught.reason) == ("timeout", "No complete answer within 0.2 s.")
    assert 0.15 < loop.time() - started < 10


@pytest.mark.rule("WEB-03")
@pytest.mark.asyncio
async def test_the_deadline_covers_the_lookup_and_the_tls_handshake() -> None:
    outbound = Outbound(LOCAL, resolver=SilentResolver())
    assert (await failure("http://silent.example/", outbound, deadline_s=0.1)).kind == "timeout"
    async with serving(hang) as server:
        assert (await failure(server.url(scheme="https"), deadline_s=0.1)).kind == "timeout"
        await asyncio.wait_for(server.gone.wait(), 5)  # the socket is closed, not left to the collector


@pytest.mark.rule("WEB-03")
@pytest.mark.asyncio
async def test_two_hundred_hanging_receivers_do_not_slow_another() -> None:
    async with serving(hang) as dead, serving(http(b"ok")) as alive:
        outbound = Outbound(LOCAL)
        waiting = [asyncio.create_task(call(dead.url(), outbound, deadline_s=30)) for _ in range(200)]
        for _ in waiting:
            await dead.connected.acquire()
        assert (await call(alive.url(), outbound, deadline_s=2)).body == "ok"
        for task in waiting:
            task.cancel()
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended)


@pytest.mark.asyncio
async def test_a_call_that_is_cancelled_closes_its_connection() -> None:
    async with serving(drip_body) as server:
        task = asyncio.create_task(call(server.url(), max_body_bytes=10_000_000))
        await server.connected.acquire()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.gone.wait(), 5)


@pytest.mark.rule("GOV-10")
@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"<html>HTTP/0.9 has no headers</html>",
        b"HTTP/0.9 200 OK\r\n\r\nhello",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nX-Big: " + b"x" * (1 << 20) + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Many: yes\r\n" * 100_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX-Over: " + b"x" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Nul: a\x00b\r\n\r\n",
        http(b"not gzip at all", "text/plain", "200 OK", "Content-Encoding: gzip"),
        http(gzip.compress(b"hello" * 50, mtime=0)[:-9], "text/plain", "200 OK", "Content-Encoding: gzip"),
    ],
    ids=[
        "short body",
        "negative length",
        "length in words",
        "two lengths",
        "bad chunk",
        "short chunk",
        "no headers",
        "old version",
        "another protocol",
        "nothing",
        "1 MB header",
        "100,000 headers",
        "70 KB header",
        "NUL in a header",
        "not gzip",
        "cut gzip",
    ],
)
async def test_an_answer_that_is_not_http_is_a_failure_with_a_reason(answer: bytes) -> None:
    caught = await failed(answer)
    assert caught.kind == "protocol"
    assert caught.reason


@pytest.mark.rule("SEC-04")
@pytest.mark.asyncio
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_an_answer_and_nobody_goes_there(status: str) -> None:
    async with serving(http(b"secret")) as inner:
        for place in (inner.url(), "http://169.254.169.254/latest/meta-data"):
            answer = await answered(http(b"", None, status, f"Location: {place}"), deadline_s=2)
            assert (answer.status_code, answer.headers["location"]) == (int(status[:3]), place)
    assert inner.requests == []


@pytest.mark.asyncio
async def test_cookies_do_not_travel_from_one_call_to_the_next() -> None:
    async with serving(http(b"", None, "200 OK", "Set-Cookie: session=secret")) as server:
        outbound = Outbound(LOCAL)
        for _ in range(2):
            await call(server.url(), outbound)
    assert b"cookie" not in server.requests[1].lower()


@pytest.mark.asyncio
async def test_repeated_headers_are_joined_and_odd_bytes_are_replaced() -> None:
    answer = await answered(http(b"", None, "200 OK", "X-A: 1", "x-a: 2", "X-Odd: \xff"))
    assert (answer.headers["x-a"], answer.headers["x-odd"]) == ("1, 2", "\ufffd")
