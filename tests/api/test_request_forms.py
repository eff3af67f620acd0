"""Requests that could be read in two ways are refused."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from holdbeat.api.access import HostList
from holdbeat.settings import Settings
from tests.api.serving import Served, problem_of, unique


@pytest.mark.rule("SEC-03")
@pytest.mark.parametrize("host", ["[::1].evil.example", "[::1]x", "[::1].evil.example:80", "[::1", "[localhost]"])
def test_a_host_that_only_begins_like_an_address_is_refused(host: str) -> None:
    assert not HostList(Settings()).knows(host, ("127.0.0.1", 80))


@pytest.mark.rule("SEC-03")
@pytest.mark.parametrize("host", ["[::1]", "[::1]:7450", "127.0.0.1:7450", "localhost"])
def test_the_names_of_this_machine_are_known(host: str) -> None:
    assert HostList(Settings()).knows(host, ("127.0.0.1", 80))


@pytest.mark.rule("SEC-06")
def test_a_body_of_two_lengths_is_refused(served: Served) -> None:
    place = urlsplit(served.url)
    body = b'{"type": "echo", "not_before": "2099-01-01T00:00:00Z"}'
    head = (
        f"POST /api/jobs HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    assert place.hostname is not None
    with socket.create_connection((place.hostname, place.port or 80), timeout=10) as client:
        client.sendall(head.encode() + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 400 ")


@pytest.mark.rule("API-02")
def test_a_webhook_of_another_version_is_not_deleted(served: Served) -> None:
    webhook = served.client.post("/api/webhooks", json={"url": f"https://{unique('w')}.example/"}).json()
    path = f"/api/webhooks/{webhook['id']}"
    problem_of(served.client.delete(path, headers={"If-Match": '"7"'}), 412, "stale_version")
    assert served.client.delete(path, headers={"If-Match": f'"{webhook["version"]}"'}).status_code == 204
