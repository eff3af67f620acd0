"""One key cannot take the server from the others: reads of clients have connections, limits and queues of their own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx2
import psycopg
import pytest

from holdbeat.api import client_limits
from holdbeat.domain.api_key import Scope
from holdbeat.domain.errors import StoreBusy
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.transaction import Transaction
from tests.api.conftest import Serve

pytestmark = pytest.mark.rule("SEC-08")

COUNTLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000000000) SELECT max(x) FROM n"


READERS = 2
"""So many reads of clients a store does at once."""


def search_without_end(tx: Transaction) -> object:
    return tx.one(COUNTLESS)


def read_as_client(store: PersistenceAdapter, verb: Callable[[Transaction], object]) -> object:
    return asyncio.run(store.read_for_client(verb))


def _be_stopped(store: PersistenceAdapter, search: Callable[[Transaction], object] = search_without_end) -> None:
    with pytest.raises(StoreBusy):
        read_as_client(store, search)


def test_a_long_read_of_a_client_is_stopped_and_says_how_to_narrow_it(serve: Serve) -> None:
    store = serve().store
    store.client_read_limit_s = 0.3
    with pytest.raises(StoreBusy, match="Narrow the filter") as refused:
        read_as_client(store, search_without_end)
    assert refused.value.code == "read_too_long"
    # The connection is good for the next read.
    assert read_as_client(store, lambda tx: tx.one("SELECT 1")) == (1,)


@pytest.mark.rule("OPS-03")
@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_read_that_a_lock_holds_up_is_not_said_to_have_too_many_rows(serve: Serve) -> None:
    server = serve()
    server.store.client_read_limit_s = 0.3
    with psycopg.connect(server.settings.store) as other:
        other.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        answer = server.client.get("/api/jobs")
    assert (answer.status_code, answer.json()["code"]) == (503, "read_too_long")
    assert "holds locks" in answer.json()["detail"] and "too many" not in answer.json()["detail"]


def test_keys_readiness_and_writes_do_not_wait_for_slow_reads_of_clients(serve: Serve) -> None:
    server = serve()
    server.store.client_read_limit_s = 0.5
    key = server.add_key(Scope.WRITE)
    begun = threading.Semaphore(0)
    is_enough = threading.Event()

    def search(tx: Transaction) -> object:
        begun.release()
        return search_without_end(tx)

    def search_again_and_again() -> None:
        while not is_enough.is_set():
            _be_stopped(server.store, search)

    # Three for each connection: as one search is stopped the next one begins.
    slow = [threading.Thread(target=search_again_and_again) for _ in range(3 * READERS)]
    for thread in slow:
        thread.start()
    try:
        for _ in range(READERS):
            assert begun.acquire(timeout=30)
        began = time.monotonic()
        headers = {"Authorization": f"Bearer {key}"}
        assert httpx2.get(f"{server.url}/readyz", headers=headers, timeout=5).status_code == 200
        body = {"type": "echo", "not_before": "2099-01-01T00:00:00Z"}
        assert httpx2.post(f"{server.url}/api/jobs", json=body, headers=headers, timeout=5).status_code == 201
        assert time.monotonic() - began < 5
        assert all(thread.is_alive() for thread in slow)
    finally:
        is_enough.set()
        for thread in slow:
            thread.join()


def test_reads_of_one_key_above_the_limit_are_refused_with_429(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_limits, "WAITING_MAX", 0)
    server = serve()
    server.store.client_read_limit_s = 1.0
    key, other = server.add_key(Scope.READ), server.add_key(Scope.READ)
    slow = [threading.Thread(target=_be_stopped, args=(server.store,)) for _ in range(4)]
    for thread in slow:
        thread.start()

    def listed(with_key: str) -> httpx2.Response:
        return httpx2.get(f"{server.url}/api/jobs", headers={"Authorization": f"Bearer {with_key}"}, timeout=30)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(listed, [key] * 7 + [other]))
    for thread in slow:
        thread.join()
    refused = [answer for answer in answers if answer.status_code == 429]
    assert answers[-1].status_code == 200
    assert refused
    for answer in refused:
        assert answer.json()["code"] == "too_many_reads"
        assert answer.headers["retry-after"] == "1"


def test_streams_of_one_key_above_the_limit_are_refused_with_429(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_limits, "STREAMS_MAX", 1)
    server = serve()
    key, other = server.add_key(Scope.READ), server.add_key(Scope.READ)
    url = f"{server.url}/api/events"
    with httpx2.stream("GET", url, headers={"Authorization": f"Bearer {key}"}) as stream:
        messages = stream.iter_raw()
        next(messages)
        refused = httpx2.get(url, headers={"Authorization": f"Bearer {key}"})
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
        with httpx2.stream("GET", url, headers={"Authorization": f"Bearer {other}"}) as second:
            assert second.status_code == 200
