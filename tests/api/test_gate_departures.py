"""Clients of a gate that go away: their slot is handed on after the upstream has ended, and never before."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.api.conftest import Serve
from tests.api.model_server import ModelServer, is_closed, model_server
from tests.api.serving import Served
from tests.waiting import eventually

HEAD = "POST /ollama{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n"


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server
        server.begin.set()
        server.go_on.set()


def gated(serve: Serve, model: ModelServer, **options: Any) -> Served:
    gate = {"upstream": model.url, "resource": "lane", **options}
    return serve(gates={"/ollama": gate}, has_worker=True)


def leases(server: Served) -> int:
    return int(server.store.read_sync(lambda tx: tx.rows("SELECT count(*) FROM leases")[0][0]))


@contextlib.contextmanager
def client_of(server: Served, path: str, length: int = 0, sent: bytes = b"") -> Iterator[socket.socket]:
    """A client that has sent its request, or a part of it, and goes away at the end of the block."""
    with socket.create_connection(("127.0.0.1", server.server.port), timeout=60) as connection:
        connection.sendall(HEAD.format(path=path, length=length).encode() + sent)
        yield connection


def before_the_answer(server: Served, model: ModelServer) -> None:
    with client_of(server, "/hang"):
        eventually(lambda: model.working)


def in_the_stream(server: Served, model: ModelServer) -> None:
    with client_of(server, "/slow") as connection:
        received = b""
        while b"first" not in received:
            received += connection.recv(1000)


def at_the_last_byte(server: Served, model: ModelServer) -> None:
    model.go_on.set()
    with client_of(server, "/slow") as connection:
        received = b""
        while b"second" not in received:
            received += connection.recv(1000)


def in_the_upload(server: Served, model: ModelServer) -> None:
    with client_of(server, "/echo", 3_000_000, b"x" * 1_500_000):
        eventually(lambda: leases(server) == 1)


def before_the_upstream_looks(server: Served, model: ModelServer) -> None:
    """The request is in the buffers of the upstream, which begins it when its client has long gone."""
    model.begin.clear()
    with client_of(server, "/api/generate", 15, b'{"prompt": "x"}'):
        eventually(lambda: model.working)
    eventually(lambda: is_closed(model.working[0]))
    threading.Timer(0.3, model.begin.set).start()


@pytest.mark.rule("GATE-01", "CON-002")
@pytest.mark.parametrize(
    "leave", [before_the_answer, in_the_stream, at_the_last_byte, in_the_upload, before_the_upstream_looks]
)
def test_whenever_a_client_leaves_the_next_request_and_the_queue_begin_after_the_upstream_has_ended(
    serve: Serve, model: ModelServer, leave: Callable[[Served, ModelServer], None]
) -> None:
    server = gated(serve, model, settle_s=60)
    for _ in range(3):
        leave(server, model)
        params = {"url": f"{model.url}/echo", "method": "POST", "body": {"prompt": "job"}}
        job = server.submit("http", params, resource="lane")
        assert server.client.post("/ollama/echo", content=b"next").json() == {"size": 4}
        assert server.wait_for(job["id"])["status"] == "COMPLETED"
    eventually(lambda: leases(server) == 0)
    assert model.most_at_once == 1


@pytest.mark.rule("GATE-01", "CON-002")
def test_a_slot_is_held_until_the_upstream_has_closed_whoever_cancels_meanwhile(
    serve: Serve, model: ModelServer
) -> None:
    server = gated(serve, model, settle_s=60)
    with client_of(server, "/deaf"):
        eventually(lambda: model.working)
        (reservation,) = server.client.get("/api/reservations?status=ACTIVE").json()["items"]
    eventually(lambda: is_closed(model.working[0]))
    job = server.submit("echo", resource="lane")
    server.client.post(f"/api/reservations/{reservation['id']}/cancel", json={"reason": "needed elsewhere"})
    with contextlib.suppress(AssertionError):
        eventually(lambda: leases(server) == 0, within_s=0.5)
    assert (len(model.working), leases(server), server.job(job["id"])["status"]) == (1, 1, "QUEUED")
    model.go_on.set()
    assert server.wait_for(job["id"])["status"] == "COMPLETED"
    assert (model.working, model.cut) == ([], 0)


@pytest.mark.rule("GATE-01", "GATE-02")
def test_an_upstream_that_does_not_end_within_the_time_is_cut_off_before_the_slot_is_free(
    serve: Serve, model: ModelServer
) -> None:
    server = gated(serve, model, settle_s=0.2)
    with client_of(server, "/deaf"):
        eventually(lambda: model.working)
    eventually(lambda: leases(server) == 0)
    model.go_on.set()
    eventually(lambda: not model.working)
    assert model.cut == 1
    (ended,) = server.client.get("/api/reservations").json()["items"]
    assert (ended["outcome"], ended["error"]) == ("CANCELLED", "the client went away")


@pytest.mark.rule("GATE-01", "CON-003")
def test_a_shutdown_does_not_hand_the_slot_on_while_the_upstream_works(serve: Serve, model: ModelServer) -> None:
    server = gated(serve, model, settle_s=60)
    with client_of(server, "/deaf"):
        eventually(lambda: model.working)
        stopping = threading.Thread(target=lambda: server.run(server.supervisor.stop(0.1)))
        stopping.start()
        eventually(lambda: is_closed(model.working[0]))
        assert leases(server) == 1
        model.go_on.set()
        stopping.join(60)
    assert (model.working, leases(server), model.cut) == ([], 0, 0)
