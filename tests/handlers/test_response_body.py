"""What is kept of an answer: JSON or text that every store takes, cut at the limit (GOV-10)."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from holdbeat.handlers.response_body import TRUNCATION_MARK
from tests.engine.calling import (
    answered,
    call,
)
from tests.engine.raw_server import http, serving


@pytest.mark.rule("GOV-10")
@pytest.mark.asyncio
async def test_a_request_arrives_as_it_was_meant_and_json_comes_back_parsed() -> None:
    async with serving(http(b'{"a": [1, 2.5, null]}', "application/json; charset=utf-8")) as server:
        url = server.url("/path?q=1")
        answer = await call(url, method="POST", headers={"X-Test": "yes"}, content=b"hello")
    assert (answer.status_code, answer.body) == (200, {"a": [1, 2.5, None]})
    assert (answer.truncated, answer.note) == (False, None)
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert 0 < answer.duration_s < 5
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"post /path?q=1 http/1.1"
    assert f"host: 127.0.0.1:{server.port}".encode() in lines
    assert b"x-test: yes" in lines
    assert b"content-length: 5" in lines
    assert body == b"hello"


@pytest.mark.rule("GOV-10")
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "content_type", "kept"),
    [
        (b"plain", "text/plain", "plain"),
        (b"<a/>", "application/xml", "<a/>"),
        (b"<a/>", "image/svg+xml", "<a/>"),
        (b"a=1", "application/x-www-form-urlencoded", "a=1"),
        (b"gr\xfc\xdfe", "text/plain; charset=iso-8859-1", "grüße"),
        (b"gr\xfc\xdfe", 'text/plain; charset="windows-1252"', "grüße"),
        ("héllo".encode("utf-16"), "text/plain; charset=utf-16", "héllo"),
        (b"bad \xff\xfe utf-8", "text/plain", "bad \ufffd\ufffd utf-8"),
        (b"uryyb", "text/plain; charset=rot13", "uryyb"),
        (b"hello", "text/plain; charset=no-such-thing", "hello"),
        (b"hello", "text/plain; charset=punycode", "hello"),
        (b"\xef\xbb\xbfbom", "text/plain", "bom"),
        (b"nul\x00inside", "text/plain", "nul\ufffdinside"),
        (b"untyped", None, "untyped"),
        (b"", "text/plain", None),
        (b'{"a":', "application/json", '{"a":'),
        (b'{"a": NaN}', "application/json", '{"a": NaN}'),
        (b'{"a": 1e999}', "application/json", '{"a": 1e999}'),
        (b'{"a": 9223372036854775808}', "application/json", '{"a": 9223372036854775808}'),
        (b'{"a": 9223372036854775807}', "application/json", {"a": 2**63 - 1}),
        (b"[" * 400 + b"]" * 400, "application/json", "[" * 400 + "]" * 400),
        (b"\xef\xbb\xbf[1]", "application/problem+json", [1]),
        (b'{"a\\u0000": "\\ud800x\\udc00"}', "application/json", {"a\ufffd": "\ufffdx\ufffd"}),
        (b'["\\ud83d\\ude00"]', "application/json", ["\U0001f600"]),
        (b'["\xff"]', "application/json", ["\ufffd"]),
        (b"null", "application/json", None),
    ],
)
async def test_json_and_text_are_kept_in_a_form_that_every_store_takes(
    body: bytes, content_type: str | None, kept: object
) -> None:
    answer = await answered(http(body, content_type))
    assert answer.body == kept
    assert (answer.truncated, answer.note) == (False, None)
    json.dumps(answer.body, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.rule("GOV-10")
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "content_type", "lines"),
    [
        (b"\x89PNG\r\n", "image/png", ()),
        (b"\x00\x01\x02", "application/octet-stream", ()),
        (b"\xff\xfe\x00binary", None, ()),
        (b"brotli", "text/plain", ("Content-Encoding: br",)),
        (b"twice", "text/plain", ("Content-Encoding: gzip, gzip",)),
    ],
)
async def test_what_is_neither_json_nor_text_is_left_out_with_a_note(
    body: bytes, content_type: str | None, lines: tuple[str, ...]
) -> None:
    for limit in (1000, 1):
        answer = await answered(http(body, content_type, "200 OK", *lines), max_body_bytes=limit)
        assert answer.body is None
        assert answer.note is not None
        assert answer.note.startswith("body not kept")
        assert not answer.truncated


@pytest.mark.rule("GOV-10")
@pytest.mark.asyncio
async def test_a_long_body_is_cut_with_a_mark_and_stays_within_the_limit() -> None:
    whole = await answered(http(b"x" * 1000))
    assert (whole.body, whole.truncated) == ("x" * 1000, False)
    for body in (b"x" * 1001, b"\xff" * 1000, "€".encode() * 400, b"[" + b"1," * 600 + b"1]"):
        cut = await answered(http(body, "application/json"))
        assert cut.truncated
        assert isinstance(cut.body, str)
        assert cut.body.endswith(TRUNCATION_MARK)
        assert 990 < len(cut.body.encode()) <= 1000
    assert (await answered(http(b"abcdef"), max_body_bytes=3)).body == "abc"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(b"hello" * 100, mtime=0)),
        ("GZIP", gzip.compress(b"hello" * 100, mtime=0)),
        ("deflate", zlib.compress(b"hello" * 100)),
        ("deflate", zlib.compress(b"hello" * 100)[2:-4]),
    ],
    ids=["gzip", "upper case", "deflate", "deflate without a frame"],
)
async def test_packed_bodies_are_unpacked(encoding: str, packed: bytes) -> None:
    answer = await answered(http(packed, "text/plain", "200 OK", f"Content-Encoding: {encoding}"))
    assert answer.body == "hello" * 100


@pytest.mark.asyncio
async def test_head_and_empty_answers_have_no_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nContent-Encoding: gzip\r\n\r\n"
    assert (await answered(head, method="HEAD")).body is None
    assert (await answered(b"HTTP/1.1 204 No Content\r\n\r\n")).body is None
