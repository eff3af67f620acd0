"""Bodies that nobody should send: refused alike on both stores, before anything is stored."""

from __future__ import annotations

import http.client
import socket
from typing import Any

import httpx2
import pytest

from tests.api.serving import Served, problem_of, unique

DEEP = 100_000


def send(client: httpx2.Client, body: bytes, path: str = "/api/jobs") -> httpx2.Response:
    return client.post(path, content=body, headers={"Content-Type": "application/json"})


def with_params(text: str) -> bytes:
    return f'{{"type":"anything","params":{{"v":{text}}}}}'.encode("utf-8", "surrogatepass")


@pytest.mark.rule("SEC-06")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b" ", 400),
        (b"{", 400),
        (b"{}}", 400),
        (b"nul", 400),
        (b"\xff\xfe{}", 400),
        (b"[" * DEEP, 400),
        (b'{"a":' * DEEP, 400),
        (b"{'type': 'echo'}", 400),
        (b'{"type":"echo",}', 400),
        (b"[" * DEEP + b"]" * DEEP, 422),
        (with_params("[" * DEEP + "]" * DEEP), 422),
        (with_params("[" * 70 + "]" * 70), 422),
        (with_params('"a\\u0000b"'), 422),
        (with_params('"\\ud800"'), 422),
        (b'{"type":"anything","params":{"v\\u0000":1}}', 422),
        (with_params("NaN"), 422),
        (with_params("Infinity"), 422),
        (with_params("-Infinity"), 422),
        (with_params("9223372036854775808"), 422),
        (with_params("-9223372036854775809"), 422),
        (with_params("9" * 5000), 422),
        (b'{"type":"anything","type":"echo"}', 422),
        (with_params('{"a":1,"a":2}'), 422),
        (with_params('"' + "x" * 270_000 + '"'), 422),
        (b'{"type":"anything\\u0000"}', 422),
        (b'{"type":"' + b"x" * 5000 + b'"}', 422),
        (b'{"type":"anything","labels":{"a":"' + b"x" * 5000 + b'"}}', 422),
        (b'{"type":"anything","idempotency_key":"a\\nb"}', 422),
        (b"null", 422),
        (b"5", 422),
        (b'"text"', 422),
        (b"[]", 422),
    ],
)
def test_a_bad_body_gets_the_same_answer_on_every_store_and_leaves_nothing(
    client: httpx2.Client, body: bytes, status: int
) -> None:
    before = client.get("/api/stats").json()["jobs"]["total"]
    problem_of(send(client, body), status)
    assert client.get("/api/stats").json()["jobs"]["total"] == before


@pytest.mark.rule("SEC-06")
@pytest.mark.parametrize(
    "path",
    [
        "/api/jobs/batch", "/api/jobs/cancel", "/api/job-runs/retry", "/api/job-groups", "/api/job-templates",
        "/api/schedules", "/api/schedules/preview", "/api/endpoints", "/api/webhooks", "/api/queue/pause",
        "/api/queue/reorder", "/api/direct/echo", "/jobs/echo/trigger", "/jobs/batch/trigger", "/login",
        "/story/generate",
    ],
)  # fmt: skip
def test_every_route_with_a_body_refuses_what_is_no_json_and_what_no_store_could_keep(
    client: httpx2.Client, path: str
) -> None:
    problem_of(send(client, b"{", path), 400, "malformed_json")
    problem_of(send(client, b'{"a":"\\u0000"}', path), 422)
    problem_of(send(client, b'{"a":NaN}', path), 422)
    problem_of(send(client, b"[" * DEEP + b"]" * DEEP, path), 422)
    problem_of(send(client, b"5", path), 422)


@pytest.mark.rule("SEC-06")
@pytest.mark.parametrize(
    "value",
    ["text", "ünï¢ødé 🦊", "\u202e\u200b", "<script>alert(1)</script>", "' OR 1=1 --", "%s {} \x1b[31m", "\x7f", " "],
)
def test_what_can_be_kept_comes_back_as_it_was_sent(served: Served, value: str) -> None:
    job = served.run_job("anything", {"v": value, "n": 2**63 - 1, "f": 1e300, "deep": [[[[{}]]]]})
    assert job["params"] == {"v": value, "n": 2**63 - 1, "f": 1e300, "deep": [[[[{}]]]]}
    assert job["run"]["result"] == job["params"]


def raw_post(served: Served, headers: dict[str, str], chunks: Any) -> tuple[int, bytes]:
    """Sends a body piece by piece, and reads the answer even if the server stops listening in between."""
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=20) as line:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        line.sendall(f"POST /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n".encode())
        try:
            for chunk in chunks:
                line.sendall(chunk)
        except OSError:
            pass
        answer = http.client.HTTPResponse(line)
        answer.begin()
        return answer.status, answer.read()


@pytest.mark.rule("SEC-06")
def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read(served: Served) -> None:
    status, body = raw_post(served, {"Content-Length": str(100 * 1024 * 1024)}, [])
    assert status == 413
    assert b"body_too_large" in body


@pytest.mark.rule("SEC-06")
def test_a_body_without_a_length_is_read_no_further_than_its_limit(served: Served) -> None:
    sent = 0

    def chunks() -> Any:
        nonlocal sent
        piece = b"%x\r\n" % 65536 + b" " * 65536 + b"\r\n"
        for _ in range(3200):
            sent += 65536
            yield piece

    status, body = raw_post(served, {"Transfer-Encoding": "chunked"}, chunks())
    assert status == 413
    assert b"body_too_large" in body
    assert sent < 150 * 1024 * 1024


@pytest.mark.rule("SEC-06")
def test_a_large_body_from_an_ordinary_client_gets_its_answer(client: httpx2.Client) -> None:
    problem_of(client.post("/api/jobs", content=b" " * 10_000_000), 413, "body_too_large")
    almost = b'{"type":"echo"' + b" " * 1_000_000 + b"}"
    assert client.post("/api/jobs", content=almost).status_code == 201


@pytest.mark.rule("SEC-06")
def test_text_from_outside_never_becomes_a_second_line_in_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    name = unique("evil") + "\n\x1b[31mFORGED %s {}"
    problem_of(served.client.post("/api/jobs", json={"type": name}), 422)
    problem_of(
        served.client.post("/api/job-groups", json={"mode": "parallel", "name": name, "jobs": [{"type": "echo"}]}), 422
    )
    assert not any("\n\x1b[31mFORGED" in record.getMessage() for record in caplog.records)


@pytest.mark.rule("SEC-06")
def test_params_may_be_64_levels_deep_however_the_body_wraps_them(served: Served) -> None:
    def job(levels: int) -> str:
        return f'{{"type":"anything","params":{{"v":{"[" * (levels - 1)}{"]" * (levels - 1)}}}}}'

    for path, wrapped in (("/api/jobs", "{}"), ("/api/jobs/batch", '{{"jobs":[{}]}}')):
        assert send(served.client, wrapped.format(job(64)).encode(), path).status_code == 201
        problem_of(send(served.client, wrapped.format(job(65)).encode(), path), 422)
