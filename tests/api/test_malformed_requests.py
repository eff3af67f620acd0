"""Malformed requests, which the HTTP parser refuses, are answered in the form of every other refusal."""

from __future__ import annotations

import contextlib
import json
import socket

import pytest

from tests.api.conftest import Serve
from tests.api.serving import Served


@pytest.mark.rule("API-01", "SEC-06")
@pytest.mark.parametrize(
    "request_",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nbad header\r\n\r\n",
    ],
)
def test_a_request_that_is_no_http_is_refused_as_a_problem(served: Served, request_: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=10) as line:
        line.sendall(request_)
        output = b""
        while part := line.recv(65536):
            output += part
    head, _, body = output.partition(b"\r\n\r\n")
    status, *headers = head.decode("latin-1").split("\r\n")
    named = dict(header.lower().split(": ", 1) for header in headers)
    assert status == "HTTP/1.1 400 Bad Request"
    assert named["content-type"] == "application/problem+json"
    assert named["connection"] == "close"
    assert "content-security-policy" in named
    problem = json.loads(body)
    assert (problem["status"], problem["code"]) == (400, "malformed_request")
    assert problem["detail"].endswith(".")


def exchanged(served: Served, *parts: bytes) -> bytes:
    """All that a server answers on one connection, until it closes that."""
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=10) as line:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                line.sendall(part)
        output = b""
        with contextlib.suppress(ConnectionError):
            while part := line.recv(65536):
                output += part
    return output


HOST = b"Host: 127.0.0.1\r\n"
CHUNKED = b"POST /api/jobs HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n"


@pytest.mark.rule("SEC-06")
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: ", *[b"x" * 8192] * 64], id="header"),
        pytest.param([b"GET /healthz HTTP/1.1\r\n" + HOST, *[b"X: " + b"x" * 4000 + b"\r\n"] * 128], id="headers"),
        pytest.param([b"GET /", *[b"x" * 8192] * 64], id="path"),
        pytest.param([CHUNKED + b"\r\n2\r\n{}\r\n0\r\n", *[b"X: " + b"x" * 4000 + b"\r\n"] * 128], id="trailers"),
        pytest.param([CHUNKED + b"\r\n2;", *[b"x" * 8192] * 64], id="chunk extension"),
    ],
)
def test_what_is_neither_body_nor_a_head_of_64_kb_is_not_taken_without_end(served: Served, parts: list[bytes]) -> None:
    output = exchanged(served, *parts)
    # The line may be cut before the client has read the refusal.
    assert output == b"" or output.startswith(b"HTTP/1.1 400 ")


@pytest.mark.rule("SEC-03")
@pytest.mark.parametrize("hosts", [b"", HOST * 2, HOST + b"Host: example.org\r\n"])
def test_a_request_names_one_host(served: Served, hosts: bytes) -> None:
    assert exchanged(served, b"GET /healthz HTTP/1.1\r\n" + hosts + b"\r\n").startswith(b"HTTP/1.1 400 ")


@pytest.mark.rule("SEC-02")
def test_trailers_are_no_headers(serve: Serve) -> None:
    server = serve(has_worker=False, is_key_needed=True)
    key = f"Authorization: Bearer {server.admin_key}\r\n".encode()
    body = b"\r\n13\r\n" + b'{"type":"anything"}' + b"\r\n0\r\n"
    close = b"Connection: close\r\n"
    with_header = exchanged(server, CHUNKED + close + key + body + b"\r\n")
    assert with_header.startswith(b"HTTP/1.1 201 ")
    with_trailer = exchanged(server, CHUNKED + close + body + key + b"\r\n")
    assert with_trailer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.rule("API-01")
def test_requests_that_are_sent_at_once_are_answered_in_order_and_what_follows_them_is_refused(served: Served) -> None:
    asked = b"".join(
        b"GET /api/jobs/" + name + b" HTTP/1.1\r\n" + HOST + b"\r\n" for name in (b"one", b"two", b"three")
    )
    output = exchanged(served, asked + b"NO HTTP\r\n\r\n")
    places = [
        output.index(name) for name in (b"There is no job one.", b"There is no job two.", b"There is no job three.")
    ]
    assert places == sorted(places)
    assert output.count(b"HTTP/1.1 404 ") == 3


@pytest.mark.rule("SEC-06")
def test_a_request_with_two_lengths_is_refused(served: Served) -> None:
    for lengths in (
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 2\r\nContent-Length: 3\r\n",
    ):
        request = b"POST /api/jobs HTTP/1.1\r\n" + HOST + lengths + b"\r\n{}\r\n"
        assert exchanged(served, request).startswith(b"HTTP/1.1 400 ")


@pytest.mark.rule("SEC-06")
@pytest.mark.parametrize("line", [b"X : 1", b" folded", b"X: a\x00b", b"X\x01: 1", b": 1"])
def test_a_header_that_others_may_read_otherwise_is_refused(served: Served, line: bytes) -> None:
    request = b"GET /healthz HTTP/1.1\r\n" + HOST + line + b"\r\n\r\n"
    assert exchanged(served, request).startswith(b"HTTP/1.1 400 ")
