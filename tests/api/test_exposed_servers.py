"""What a server accepts from other machines, no worker of its store carries into its own network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from holdbeat import App
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.ids import IdSource
from holdbeat.domain.job import Job, JobStatus
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.run import ErrorKind
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.engine import watched_outbound
from holdbeat.handlers.outbound import OutboundFailure
from holdbeat.settings import Settings
from holdbeat.store.access.exposed_servers import ARRIVAL_S, is_exposed, note_server
from holdbeat.store.opening import open_store
from holdbeat.store.running.workers import register_worker, stop_worker
from holdbeat.store.transaction import StoreTerms
from tests.api.conftest import Serve
from tests.api.test_webhooks import Receiver
from tests.waiting import eventually


@pytest.fixture
def target() -> Iterator[Receiver]:
    """Something on this machine that only this machine should reach."""
    receiver = Receiver()
    yield receiver
    receiver.close()


def worker_app(url: str, **changes: Any) -> App:
    """A worker process's App: it knows nothing of any server but what the store tells."""
    return App(settings=Settings(store=url, slots=1, http_slots=4, **changes))


def run_http_job(url: str, target: str, **changes: Any) -> Job:
    """How an http job ends that such a worker takes."""
    app = worker_app(url, **changes)

    async def main() -> Job:
        async with app.running():
            return await _call(app, target)

    try:
        return asyncio.run(main())
    finally:
        app.close()


async def _call(app: App, target: str) -> Job:
    handle = await app.with_options(retries=0).enqueue("http", url=target, method="POST", body={})
    return await handle.wait("20s")


@pytest.mark.rule("SEC-04")
def test_a_worker_of_a_server_beyond_loopback_calls_no_private_address(serve: Serve, target: Receiver) -> None:
    server = serve(host="0.0.0.0", has_worker=False, is_key_needed=True)
    ended = run_http_job(server.settings.store, target.url)
    assert ended.run is not None
    assert (ended.status, ended.run.error_kind) == (JobStatus.FAILED, ErrorKind.REJECTED)
    assert "loopback" in str(ended.run.error)
    assert target.bodies == []
    permitted = run_http_job(server.settings.store, target.url, outbound_allow=("127.0.0.1",))
    assert permitted.status is JobStatus.COMPLETED


@pytest.mark.rule("SEC-04")
def test_a_worker_of_a_server_on_loopback_calls_private_addresses(serve: Serve, target: Receiver) -> None:
    server = serve(has_worker=False)
    assert run_http_job(server.settings.store, target.url).status is JobStatus.COMPLETED


@pytest.mark.rule("SEC-04")
def test_a_worker_that_was_there_first_obeys_a_server_that_comes_later(
    new_store_url: Any, target: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_outbound, "FRESH_S", 0.0)
    app = worker_app(new_store_url())

    async def main() -> list[JobStatus]:
        async with app.running():
            first = await _call(app, target.url)
            await app.store.write(note_server, "a server", is_exposed=True)
            second = await _call(app, target.url)
            return [first.status, second.status]

    try:
        assert asyncio.run(main()) == [JobStatus.COMPLETED, JobStatus.FAILED]
    finally:
        app.close()


@pytest.mark.rule("SEC-04", "WEB-03")
def test_a_server_on_loopback_delivers_nothing_into_its_network_for_one_that_is_not(
    serve: Serve, target: Receiver
) -> None:
    server = serve()
    server.store.write_sync(note_server, "another server", is_exposed=True)
    job = server.run_job("echo", webhook_url=target.url)
    failed = eventually(lambda: server.client.get(f"/api/deliveries?job_id={job['id']}&status=FAILED").json()["items"])[
        0
    ]
    assert "loopback" in failed["last_error"]
    assert target.bodies == []


@pytest.mark.rule("SEC-04")
def test_the_store_forgets_an_exposed_server_only_when_it_has_ended_and_one_on_loopback_comes(
    new_store_url: Any,
) -> None:
    clock = ManualClock()
    store = open_store(new_store_url(), StoreTerms(IdSource(), Settings().declared_limits, 0), clock=clock)
    terms = LeaseTerms(300, 30, 60)

    def arrive(name: str, *, exposed: bool, dead: tuple[str, ...] = ()) -> bool:
        store.write_sync(note_server, name, is_exposed=exposed, dead=dead)
        return store.read_sync(is_exposed)

    try:
        assert not arrive("near", exposed=False)
        assert arrive("far", exposed=True)
        assert arrive("near", exposed=False), "it has taken its address, and is about to register"
        store.write_sync(register_worker, Worker("far", WorkerKind.SERVE, "h", 1), terms)
        assert arrive("near", exposed=False), "it is alive"
        store.write_sync(stop_worker, "far")
        assert store.read_sync(is_exposed), "what it accepted may still be queued"
        assert not arrive("near", exposed=False)
        assert arrive("killed", exposed=True)
        assert not arrive("near", exposed=False, dead=("killed",))
        assert arrive("vanished", exposed=True)
        clock.advance(ARRIVAL_S + 1)
        assert not arrive("near", exposed=False), "it never registered"
    finally:
        store.close()


@pytest.mark.rule("SEC-04")
def test_a_worker_that_cannot_ask_calls_nobody(new_store_url: Any, target: Receiver) -> None:
    app = worker_app(new_store_url())
    outbound = watched_outbound.WatchedOutbound(app.settings, lambda: app._store or app.store)
    assert app.store
    app.store.close()

    async def main() -> None:
        await outbound.call("POST", target.url, headers={}, content=b"", deadline_s=5, max_body_bytes=10)

    with pytest.raises(OutboundFailure, match="could not be asked"):
        asyncio.run(main())
    assert target.bodies == []
