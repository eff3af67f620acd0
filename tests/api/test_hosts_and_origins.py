"""Host names, origins and slow clients: what a server checks of a request besides its key."""

from __future__ import annotations

import re
import socket
import time

import pytest

from holdbeat.api.server import ApiServer
from tests.api.conftest import Serve
from tests.api.serving import FAR, Served, problem_of, unique

# --- names and sites ----------------------------------------------------------------------------------------


@pytest.mark.rule("SEC-03")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:7450", "127.0.0.1.evil.example", "localhost.evil.example", "evil@127.0.0.1",
        "127.0.0.1@evil.example", "", "169.254.169.254", "10.0.0.1", "localhost:99999", "0.0.0.0",
        "127.0.0.1, evil.example",
    ],
)  # fmt: skip
def test_a_strange_host_is_misdirected_on_every_path(served: Served, host: str) -> None:
    for path in ("/api/jobs", "/healthz", "/api/events", "/openapi.json", "/static/x.js", "/nothing"):
        answer = served.client.get(path, headers={"Host": host})
        problem_of(answer, 421, "misdirected")


@pytest.mark.rule("SEC-03")
@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:7450", "127.0.0.1", "[::1]:7450", "127.0.0.2:80", "localhost."]
)
def test_loopback_goes_by_its_names(served: Served, host: str) -> None:
    assert served.client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.rule("SEC-03")
def test_the_operator_can_name_more_hosts(serve: Serve) -> None:
    server = serve(has_worker=False, allowed_hosts=("holdbeat.example",))
    assert server.client.get("/healthz", headers={"Host": "holdbeat.example:443"}).status_code == 200
    assert server.client.get("/healthz", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.rule("SEC-03")
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[bad"},
        {"Origin": "chrome-extension://abc"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example", "Content-Type": "text/plain"},
    ],
)
def test_a_write_from_another_site_is_refused_and_does_nothing(served: Served, headers: dict[str, str]) -> None:
    label = unique("csrf")
    body = {"type": "echo", "labels": {"csrf": label}, "not_before": FAR}
    for path in ("/api/jobs", "/api/queue/pause", "/jobs/echo/trigger", "/login"):
        problem_of(served.client.post(path, json=body, headers=headers), 403, "cross_site")
    assert served.client.get("/api/jobs", params={"label": f"csrf={label}"}).json()["items"] == []
    assert served.client.get("/api/jobs", headers=headers).status_code == 200


@pytest.mark.rule("SEC-03")
def test_a_write_from_the_own_page_is_taken(served: Served) -> None:
    own = {"Origin": served.url, "Sec-Fetch-Site": "same-origin"}
    body = {"type": "echo", "not_before": FAR}
    assert served.client.post("/api/jobs", json=body, headers=own).status_code == 201


@pytest.mark.rule("SEC-03")
@pytest.mark.parametrize("path", ["/api/jobs", "/healthz", "/nothing", "/docs", "/api/jobs/x", "/openapi.json"])
def test_every_answer_carries_the_headers_that_keep_browsers_safe(served: Served, path: str) -> None:
    answer = served.client.get(path, headers={"Origin": "http://evil.example"})
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "referrer-policy" in answer.headers
    assert not any(name.startswith("access-control-") for name in answer.headers)
    if answer.headers["content-type"].startswith("text/html"):
        assert re.sub(r'<script type="module" src="/[a-z/.]+"></script>', "", answer.text).count("<script") == 0


@pytest.mark.rule("API-01")
def test_what_the_router_refuses_is_a_problem_too(served: Served) -> None:
    problem_of(served.client.get("/api/nothing"), 404, "not_found")
    answer = served.client.put("/api/jobs", json={})
    problem_of(answer, 405, "method_not_allowed")
    assert set(re.split(r", ?", answer.headers["allow"])) & {"GET", "POST"}
    problem_of(served.client.get("/api/jobs/"), 404)
    words = (
        "PATCH /api/jobs/batch",
        "GET /api/job-runs/retry",
        "DELETE /api/schedules/preview",
        "GET /jobs/batch/trigger",
    )
    for method, path in (word.split() for word in words):
        refused = served.client.request(method, path)
        problem_of(refused, 405)
        assert refused.headers["allow"] == "POST"


@pytest.mark.rule("API-01")
def test_a_fault_of_the_server_shows_an_id_and_nothing_else(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = serve(has_worker=False)

    def broken() -> tuple[bytes, str]:
        raise ZeroDivisionError("a secret detail")

    server.server.context.metrics = broken
    problem = problem_of(server.client.get("/metrics"), 500, "internal_error")
    assert "secret" not in str(problem)
    assert "Traceback" not in str(problem)
    assert any(problem["id"] in record.getMessage() and record.exc_info for record in caplog.records)


# --- slow clients -------------------------------------------------------------------------------------------


@pytest.mark.rule("SEC-06")
def test_a_client_that_sends_nothing_or_drips_is_cut_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdbeat.api.server.REQUEST_TIMEOUT_S", 0.5)
    head = b"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    starts = (
        b"",
        b"GET /hea",
        head,
        head + b"Content-Length: 100\r\n\r\n{",
        head + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{",
    )
    lines = []
    for start in starts:
        line = socket.create_connection(("127.0.0.1", served.server.port), timeout=10)
        line.sendall(start)
        lines.append(line)
    began = time.monotonic()
    for line in lines:
        while line.recv(4096):
            continue
        line.close()
    assert time.monotonic() - began < 15
    assert served.client.get("/healthz").status_code == 200


@pytest.mark.rule("SEC-06")
def test_hundreds_of_idle_connections_leave_the_api_alive(served: Served) -> None:
    lines = [socket.create_connection(("127.0.0.1", served.server.port), timeout=10) for _ in range(300)]
    try:
        assert served.client.get("/healthz").status_code == 200
    finally:
        for line in lines:
            line.close()


@pytest.mark.rule("SEC-06")
def test_a_head_without_end_is_refused(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=10) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * 200_000)
        assert line.recv(100).startswith(b"HTTP/1.1 4")


def test_the_server_is_one_that_can_be_asked_where_it_is(served: Served) -> None:
    assert isinstance(served.server, ApiServer)
    assert served.server.address == f"http://127.0.0.1:{served.server.port}"
