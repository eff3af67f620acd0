"""Malformed requests, which the HTTP parser refuses, are answered in the form of every other refusal."""

from __future__ import annotations

import json
import socket

import pytest

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
