"""Answers have a limit of size, and nobody keeps one in the server's memory by not reading it."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdbeat.api import server as api_server
from holdbeat.store.reads import list_jobs
from holdbeat.store.transaction import Transaction
from tests.api.conftest import Serve
from tests.api.serving import Served, unique
from tests.waiting import eventually

pytestmark = pytest.mark.rule("SEC-09")


def job_with_large_result(served: Served) -> dict[str, Any]:
    return served.run_job("anything", {"text": "x" * 100_000})


def test_a_single_job_has_its_result_whole_and_once(served: Served) -> None:
    run = job_with_large_result(served)["run"]
    assert run["result"] == {"text": "x" * 100_000}
    assert (run["result_bytes"], run["result_url"]) == (None, None)
    assert "result" not in run["artifacts"]


def test_lists_have_the_size_and_the_link_of_a_large_result(served: Served) -> None:
    label = unique("large")
    job = served.run_job("anything", {"text": "x" * 100_000}, labels={"size": label})
    (listed,) = served.client.get("/api/jobs", params={"label": f"size={label}"}).json()["items"]
    (run,) = served.client.get("/api/job-runs", params={"job_id": job["id"]}).json()["items"]
    for short in (listed["run"], run):
        assert short["result"] is None
        assert 100_000 < short["result_bytes"] < 100_100
        assert served.client.get(short["result_url"]).json() == {"text": "x" * 100_000}


def test_lists_have_a_small_result_itself(served: Served) -> None:
    label = unique("small")
    served.run_job("echo", {"x": 7}, labels={"size": label})
    (listed,) = served.client.get("/api/jobs", params={"label": f"size={label}"}).json()["items"]
    assert listed["run"]["result"] == {"x": 7, "text": None}
    assert listed["run"]["result_url"] is None


def test_a_page_of_large_rows_ends_early_and_the_next_one_continues(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_jobs, "PAGE_CHARS", 50_000)
    label = unique("rows")
    params = {"text": "x" * 20_000}
    fields = {"labels": {"size": label}, "not_before": "2099-01-01T00:00:00Z"}
    ids = [served.submit("anything", params, **fields)["id"] for _ in range(5)]
    collected: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        query = {"label": f"size={label}"} | ({"cursor": cursor} if cursor else {})
        page = served.client.get("/api/jobs", params=query).json()
        assert len(page["items"]) <= 2
        collected += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
        pages += 1
    assert sorted(collected) == sorted(ids)
    assert len(collected) == 5


def test_webhooks_get_a_link_to_a_large_result_and_store_no_copy_of_it(serve: Serve) -> None:
    server = serve()
    for number in range(5):
        body = {"url": f"https://receiver-{number}.example/"}
        assert server.client.post("/api/webhooks", json=body).status_code == 201
    run = job_with_large_result(server)["run"]

    def payloads() -> list[str]:
        def read(tx: Transaction) -> list[str]:
            return [row[0] for row in tx.rows("SELECT payload FROM deliveries")]

        ended = [text for text in server.store.read_sync(read) if json.loads(text)["data"]["run"]["status"]]
        return ended if len(ended) == 5 else []

    stored = eventually(payloads)
    for payload in stored:
        assert len(payload) < 10_000 + 2 * 2 * 100_000  # the params, in the job and in its run, twice
        data = json.loads(payload)["data"]
        assert data["run"]["result"] is None
        assert data["run"]["result_url"] == f"/api/job-runs/{run['id']}/artifacts/result"


def test_a_client_that_does_not_read_its_answer_is_cut_off(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server, "READ_TIMEOUT_S", 0.5)
    server = serve()
    job = server.run_job("anything", {"text": "x" * 200_000})
    place = urlsplit(server.url)
    assert place.hostname is not None
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((place.hostname, place.port))
        request = f"GET /api/jobs/{job['id']} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode()
        client.sendall(request * 40)
        port = client.getsockname()[1]
        eventually(lambda: port in _ports_of_clients(server))
        eventually(lambda: port not in _ports_of_clients(server), 30)
        client.settimeout(10)
        taken = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(1 << 20):
                taken += len(piece)
    assert taken < 40 * 600_000 / 2


def _ports_of_clients(server: Served) -> set[int]:
    """The ports of the clients whose connections the server has not ended."""
    assert server.server._server is not None
    connections: list[Any] = list(server.server._server.server_state.connections)
    return {connection.client[1] for connection in connections}
