"""Where a call goes: only to the address that was judged, and over TLS that holds (SEC-04)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import ssl
import threading
from typing import Any

import pytest

from holdbeat.domain.address import OutboundPolicy
from holdbeat.handlers.outbound import MAX_LOOKUPS, Outbound, OutboundFailure, SystemResolver
from tests.engine.acting import until
from tests.engine.calling import (
    LOCAL,
    OPEN,
    ScriptedResolver,
    call,
    failed,
    failure,
)
from tests.engine.raw_server import TLS, http, serving


@pytest.mark.asyncio
async def test_a_refused_or_reset_connection_and_an_unknown_name_are_failures_to_connect() -> None:
    async with serving(http(b"")) as server:
        pass
    assert (await failure(server.url())).kind == "connect"

    async def reset(writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    assert (await failed(reset)).kind in ("connect", "protocol")
    unknown = await failure("http://no-such-name.invalid/", Outbound(LOCAL, resolver=SystemResolver()))
    assert unknown.kind == "connect"
    assert "no-such-name.invalid" in unknown.reason


@pytest.mark.asyncio
async def test_the_next_address_is_tried_when_the_first_is_dead() -> None:
    async with serving(http(b"ok"), host="127.0.0.1") as server:
        outbound = Outbound(LOCAL, resolver=ScriptedResolver(["127.0.0.77", "127.0.0.1"]))
        assert (await call(server.url(host="two.example"), outbound)).body == "ok"


@pytest.mark.asyncio
async def test_an_address_that_never_answers_leaves_time_for_the_next() -> None:
    async with serving(http(b"ok"), host="127.0.0.1") as server:
        with contextlib.ExitStack() as stack:
            # Nobody accepts here, and once its backlog is full the kernel drops what else arrives.
            unsubscribe = stack.enter_context(socket.socket())
            unsubscribe.bind(("127.0.0.3", server.port))
            unsubscribe.listen(0)
            for _ in range(4):
                filler = stack.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.3", server.port))
            outbound = Outbound(LOCAL, resolver=ScriptedResolver(["127.0.0.3", "127.0.0.1"]))
            assert (await call(server.url(host="two.example"), outbound, deadline_s=1.0)).body == "ok"


@pytest.mark.asyncio
async def test_the_machines_resolver_finds_localhost() -> None:
    assert "127.0.0.1" in await SystemResolver().resolve("localhost", 80)


@pytest.mark.rule("LIM-14", "WEB-03")
@pytest.mark.asyncio
async def test_two_hundred_names_that_are_not_resolved_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, is_over = socket.getaddrinfo, threading.Event()
    asked: list[str] = []

    def slow(host: str, *rest: Any, **options: Any) -> Any:
        if host.endswith(".example"):
            asked.append(host)
            is_over.wait(60)
            raise OSError("the name server does not answer")
        return resolve(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    async with serving(http(b"ok"), host="127.0.0.1") as server:
        outbound = Outbound(LOCAL, resolver=SystemResolver())
        names = [f"http://silent-{number}.example/" for number in range(200)]
        waiting = [asyncio.create_task(failure(name, outbound, deadline_s=60)) for name in names]
        try:
            await until(lambda: len(asked) >= min(len(names), MAX_LOOKUPS))
            answer = await call(server.url(host="localhost"), outbound, deadline_s=30)
        finally:
            is_over.set()
            failures = await asyncio.gather(*waiting)
    assert answer.body == "ok"
    assert {one.kind for one in failures} == {"connect"}


@pytest.mark.rule("SEC-04")
@pytest.mark.asyncio
async def test_the_vetted_address_is_the_one_connected_to() -> None:
    async with (
        serving(http(b"good"), host="127.0.0.1") as good,
        serving(http(b"evil"), host="127.0.0.2", port=good.port) as evil,
    ):
        resolver = ScriptedResolver(["127.0.0.1"], ["127.0.0.2"])
        outbound = Outbound(OutboundPolicy(False, ("127.0.0.1",)), resolver=resolver)
        url = good.url(host="rebind.example")
        assert (await call(url, outbound)).body == "good"
        assert resolver.asked == ["rebind.example"]
        assert (await failure(url, outbound)).kind == "refused_target"
    assert f"host: rebind.example:{good.port}".encode() in good.requests[0].lower()
    assert evil.requests == []


@pytest.mark.rule("SEC-04")
@pytest.mark.asyncio
async def test_of_several_addresses_only_permitted_ones_are_tried() -> None:
    async with (
        serving(http(b"good"), host="127.0.0.1") as good,
        serving(http(b"evil"), host="127.0.0.2", port=good.port) as evil,
    ):
        resolver = ScriptedResolver(["127.0.0.2", "169.254.169.254", "127.0.0.1"])
        outbound = Outbound(OutboundPolicy(False, ("127.0.0.1",)), resolver=resolver)
        assert (await call(good.url(host="mixed.example"), outbound)).body == "good"
    assert evil.requests == []


@pytest.mark.rule("SEC-04")
@pytest.mark.asyncio
@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.0.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "169.254.169.254", "0.0.0.0"],
)
async def test_a_name_that_leads_to_a_forbidden_address_is_refused(address: str) -> None:
    caught = await failure("http://innocent.example/", Outbound(OPEN, resolver=ScriptedResolver([address])))
    assert caught.kind == "refused_target"
    assert "innocent.example" in caught.reason


@pytest.mark.rule("SEC-04")
@pytest.mark.asyncio
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.1", "[::1]", "[::ffff:127.0.0.1]", "localhost"],
)
async def test_no_spelling_of_loopback_reaches_a_server(host: str) -> None:
    async with serving(http(b"secret")) as server:
        caught = await failure(f"http://{host}:{server.port}/", Outbound(OPEN))
    assert caught.kind == "refused_target"
    assert server.requests == []


@pytest.mark.rule("SEC-04")
@pytest.mark.asyncio
async def test_an_odd_spelling_reaches_the_address_that_was_judged() -> None:
    async with serving(http(b"ok")) as server:
        for host in ("127.1", "0x7f000001", "2130706433", "[::ffff:127.0.0.1]"):
            assert (await call(f"http://{host}:{server.port}/")).body == "ok"


@pytest.mark.rule("SEC-04")
@pytest.mark.asyncio
async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(http(b"proxied")) as proxy, serving(http(b"direct")) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setitem(os.environ, name, proxy.url())
        assert (await call(server.url())).body == "direct"
    assert proxy.requests == []


@pytest.mark.asyncio
async def test_nothing_is_called_after_the_end() -> None:
    async with serving(http(b"")) as server:
        outbound = Outbound(LOCAL)
        await outbound.aclose()
        assert (await failure(server.url(), outbound)).kind == "connect"
    assert server.requests == []


def test_a_failure_can_be_sent_between_processes() -> None:
    copy = pickle.loads(pickle.dumps(OutboundFailure("why", "tls")))
    assert (copy.reason, copy.kind) == ("why", "tls")


# TLS


def trusting(certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(TLS / certificate))


@pytest.mark.rule("WEB-03")
@pytest.mark.asyncio
async def test_tls_works_with_a_certificate_that_is_trusted() -> None:
    async with serving(http(b"safe"), certificate="localhost.pem") as server:
        outbound = Outbound(LOCAL, ssl_context=trusting("localhost.pem"))
        for host in ("localhost", "127.0.0.1"):
            assert (await call(server.url(scheme="https", host=host), outbound)).body == "safe"


@pytest.mark.rule("WEB-03")
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("certificate", "trusted"),
    [("localhost.pem", None), ("other_host.pem", "other_host.pem"), ("expired.pem", "expired.pem")],
)
async def test_tls_that_is_self_signed_expired_or_of_another_host_is_refused(
    certificate: str, trusted: str | None
) -> None:
    async with serving(http(b"secret"), certificate=certificate) as server:
        outbound = Outbound(LOCAL, ssl_context=None if trusted is None else trusting(trusted))
        caught = await failure(server.url(scheme="https", host="localhost"), outbound)
    assert caught.kind == "tls"
    assert server.requests == []


@pytest.mark.asyncio
async def test_plain_text_where_tls_was_expected_is_refused() -> None:
    async def talk_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nplain text to a TLS client")
        await reader.read(1 << 16)
        writer.close()

    listener = await asyncio.start_server(talk_first, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        assert (await failure(f"https://127.0.0.1:{port}/")).kind == "tls"
