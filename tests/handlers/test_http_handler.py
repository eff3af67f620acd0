"""The `http` job: what it takes, what counts as success, and what is left of a failure (GOV-10)."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
from typing import Any

import jsonschema_rs
import pytest

from holdbeat.domain.address import OutboundPolicy
from holdbeat.domain.endpoint import METHODS
from holdbeat.domain.errors import Invalid
from holdbeat.handlers.http import (
    HTTP_PARAMS_SCHEMA,
    HttpFailure,
    HttpParams,
    call_http,
    validate_http_params,
)
from holdbeat.handlers.outbound import Outbound
from tests.engine.raw_server import http, serving

LOCAL = OutboundPolicy(loopback_server=True)
OPEN = OutboundPolicy(loopback_server=False)


async def hang(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def failing(outbound: Outbound, params: dict[str, Any]) -> HttpFailure:
    with pytest.raises(HttpFailure) as caught:
        await call_http(outbound, params)
    return caught.value


@pytest.mark.rule("GOV-10")
@pytest.mark.asyncio
async def test_the_result_of_a_success_has_the_promised_shape() -> None:
    async with serving(http(b'{"ok":true}', "application/json", "201 Created", "Set-Cookie: s=1")) as server:
        result = await call_http(Outbound(LOCAL), {"url": server.url()})
    assert set(result) == {"status_code", "headers", "body", "truncated", "duration_s"}
    assert (result["status_code"], result["body"], result["truncated"]) == (201, {"ok": True}, False)
    assert result["headers"]["set-cookie"] == "[redacted]"
    json.dumps(result)


@pytest.mark.rule("SEC-07")
@pytest.mark.asyncio
@pytest.mark.parametrize("status", ["200 OK", "500 Broken"])
async def test_secrets_that_a_target_sends_back_are_kept_nowhere(status: str) -> None:
    basic = base64.b64encode(b"anna:pa55word").decode()
    sent = {"Authorization": "Bearer t0ken-of-ours", "X-Api-Key": f"Basic {basic}", "Accept": "text/plain"}
    echo = {"headers": sent, "list": ["pa55word", {"t0ken-of-ours": 1}], "plain": "text/plain"}
    answer = http(json.dumps(echo).encode(), "application/json", status, "X-Echo: got t0ken-of-ours")
    async with serving(answer) as server:
        call = call_http(Outbound(LOCAL), {"url": server.url(), "headers": sent})
        try:
            result = await call
        except HttpFailure as failure:
            assert failure.result is not None
            result = failure.result
    text = json.dumps(result)
    for secret in ("t0ken-of-ours", basic, "pa55word"):
        assert secret not in text
    assert result["body"]["plain"] == "text/plain"
    assert result["body"]["list"] == ["[redacted]", {"[redacted]": 1}]
    assert result["headers"]["x-echo"] == "got [redacted]"


@pytest.mark.rule("GOV-10")
@pytest.mark.asyncio
@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 308, 400, 401, 404, 410, 429, 500, 503])
async def test_anything_but_2xx_is_a_failure_that_keeps_the_answer(status: int) -> None:
    async with serving(http(b"why", "text/plain", f"{status} X", "Location: http://169.254.169.254/")) as server:
        caught = await failing(Outbound(LOCAL), {"url": server.url()})
    assert (caught.kind, caught.message.split(":")[0]) == ("error", f"HTTP {status}")
    assert caught.result is not None
    assert caught.result["status_code"] == status
    assert status == 304 or caught.result["body"] == "why"


@pytest.mark.rule("GOV-10")
@pytest.mark.asyncio
async def test_its_time_limit_ends_the_call() -> None:
    async with serving(hang) as server:
        caught = await failing(Outbound(LOCAL), {"url": server.url(), "timeout_s": 0.1})
    assert (caught.kind, caught.result) == ("timeout", None)


@pytest.mark.rule("GOV-10")
@pytest.mark.asyncio
async def test_the_body_is_cut_at_max_response_kb() -> None:
    async with serving(http(b"x" * 5000)) as server:
        result = await call_http(Outbound(LOCAL), {"url": server.url(), "max_response_kb": 2})
    assert result["truncated"]
    assert len(result["body"].encode()) <= 2048


@pytest.mark.asyncio
async def test_a_body_that_is_not_kept_is_explained() -> None:
    async with serving(http(b"\x00\x01", "image/png")) as server:
        result = await call_http(Outbound(LOCAL), {"url": server.url()})
    assert (result["body"], result["note"]) == (None, "body not kept: image/png is neither JSON nor text")


@pytest.mark.rule("SEC-04")
@pytest.mark.asyncio
@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://169.254.169.254/", "http://2130706433/", "nonsense"])
async def test_a_forbidden_target_is_rejected_and_not_called(url: str) -> None:
    caught = await failing(Outbound(OPEN), {"url": url})
    assert (caught.kind, caught.result) == ("rejected", None)


@pytest.mark.asyncio
async def test_params_that_became_invalid_are_rejected_at_run_time() -> None:
    assert (await failing(Outbound(LOCAL), {"url": "http://127.0.0.1/", "method": "TRACE"})).kind == "rejected"


@pytest.mark.asyncio
async def test_a_server_that_is_not_there_is_an_error() -> None:
    async with serving(b"") as server:
        pass
    assert (await failing(Outbound(LOCAL), {"url": server.url()})).kind == "error"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "content_type", "sent"),
    [
        ("héllo", b"text/plain; charset=utf-8", "héllo".encode()),
        ({"a": [1, "é"]}, b"application/json", '{"a":[1,"é"]}'.encode()),
        ([], b"application/json", b"[]"),
        (False, b"application/json", b"false"),
        (0, b"application/json", b"0"),
        ("", b"text/plain; charset=utf-8", b""),
    ],
)
async def test_text_is_sent_as_it_is_and_other_values_as_json(body: Any, content_type: bytes, sent: bytes) -> None:
    async with serving(http(b"")) as server:
        await call_http(Outbound(LOCAL), {"url": server.url(), "method": "PUT", "body": body})
    head, _, received = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"PUT / ")
    assert b"content-type: " + content_type in head.lower()
    assert received == sent


@pytest.mark.asyncio
async def test_a_content_type_that_was_given_is_kept_and_no_body_sends_none() -> None:
    async with serving(http(b"")) as server:
        params = {"url": server.url(), "method": "POST", "body": {}, "headers": {"content-type": "text/x"}}
        await call_http(Outbound(LOCAL), params)
        await call_http(Outbound(LOCAL), {"url": server.url(), "body": None})
    assert server.requests[0].lower().count(b"content-type") == 1
    assert b"content-type" not in server.requests[1].lower()


GOOD: list[dict[str, Any]] = [
    {"url": "http://example.com/"},
    {"url": "http://example.com/", "headers": None, "body": None},
    {"url": "http://example.com/", "headers": {"X-A": "", "Authorization": "Bearer abc def"}},
    {"url": "http://example.com/", "timeout_s": 0.5, "max_response_kb": 1},
    {"url": "http://example.com/", "timeout_s": 1800, "max_response_kb": 10240},
    *({"url": "http://example.com/", "method": method} for method in METHODS),
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "url"),
    ({"url": ""}, "url"),
    ({"url": 5}, "url"),
    ({"url": None}, "url"),
    ({"url": "http://example.com/", "uri": "x"}, "uri"),
    ({"url": "http://example.com/", "method": "CONNECT"}, "method"),
    ({"url": "http://example.com/", "method": "get"}, "method"),
    ({"url": "http://example.com/", "method": "GET / HTTP/1.1\r\n"}, "method"),
    ({"url": "http://example.com/", "method": None}, "method"),
    ({"url": "http://example.com/", "timeout_s": 0}, "timeout_s"),
    ({"url": "http://example.com/", "timeout_s": 1801}, "timeout_s"),
    ({"url": "http://example.com/", "timeout_s": True}, "timeout_s"),
    ({"url": "http://example.com/", "timeout_s": "5"}, "timeout_s"),
    ({"url": "http://example.com/", "max_response_kb": 0}, "max_response_kb"),
    ({"url": "http://example.com/", "max_response_kb": 1.5}, "max_response_kb"),
    ({"url": "http://example.com/", "max_response_kb": 10241}, "max_response_kb"),
    ({"url": "http://example.com/", "headers": []}, "headers"),
    ({"url": "http://example.com/", "headers": {"X": 1}}, "headers"),
    ({"url": "http://example.com/", "headers": {"": "x"}}, "headers"),
    ({"url": "http://example.com/", "headers": {"X A": "x"}}, "headers"),
    ({"url": "http://example.com/", "headers": {"X\n": "x"}}, "headers"),
    ({"url": "http://example.com/", "headers": {"X": "a\r\nHost: b"}}, "headers"),
    ({"url": "http://example.com/", "headers": {"X": "a\n"}}, "headers"),
    ({"url": "http://example.com/", "headers": {"X": "a\x00"}}, "headers"),
    ({"url": "http://example.com/", "headers": {"X": "ü"}}, "headers"),
    ({"url": "http://example.com/", "headers": {"X": " a"}}, "headers"),
    ({"url": "http://example.com/", "headers": {"X": "a" * 8193}}, "headers"),
    ({"url": "http://example.com/", "headers": {f"X-{n}": "a" for n in range(101)}}, "headers"),
]


@pytest.mark.rule("GOV-10")
@pytest.mark.parametrize("params", GOOD)
def test_validator_and_schema_accept_the_same_params(params: dict[str, Any]) -> None:
    assert validate_http_params(params).url == params["url"]
    assert jsonschema_rs.is_valid(HTTP_PARAMS_SCHEMA, params)


@pytest.mark.rule("GOV-10")
@pytest.mark.parametrize(("params", "field"), BAD)
def test_validator_and_schema_refuse_the_same_params(params: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        validate_http_params(params)
    assert refusal.value.field == field
    assert not jsonschema_rs.is_valid(HTTP_PARAMS_SCHEMA, params)


@pytest.mark.rule("SEC-04")
@pytest.mark.parametrize(
    "name",
    ["Host", "CONTENT-LENGTH", "Transfer-Encoding", "Connection", "Upgrade", "TE", "Proxy-Authorization"],
)
def test_headers_that_frame_the_message_cannot_be_given(name: str) -> None:
    with pytest.raises(Invalid) as refusal:
        validate_http_params({"url": "http://example.com/", "headers": {name: "x"}})
    assert refusal.value.field == "headers"


def test_a_header_cannot_be_given_twice() -> None:
    with pytest.raises(Invalid, match="twice"):
        validate_http_params({"url": "http://example.com/", "headers": {"X-A": "1", "x-a": "2"}})


def test_defaults_are_filled_in_and_headers_stay_out_of_sight() -> None:
    params = validate_http_params({"url": "http://example.com/", "headers": {"Authorization": "secret"}})
    assert (params.method, params.timeout_s, params.max_response_kb) == ("GET", 30.0, 100)
    assert "secret" not in repr(params)
    assert HttpParams("http://example.com/").headers == {}


def test_a_failure_can_be_sent_between_processes() -> None:
    copy = pickle.loads(pickle.dumps(HttpFailure("HTTP 500", "error", {"status_code": 500})))
    assert (copy.message, copy.kind, copy.result) == ("HTTP 500", "error", {"status_code": 500})
