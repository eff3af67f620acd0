"""A cancel is final at once in the database, told within a second, and the slot stays held until the handler ends."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdbeat import App, Context
from holdbeat.domain.job import JobStatus
from holdbeat.engine.watches import CancelWatch
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.queue.groups import load_group
from tests.conformance.acts import open_at
from tests.engine import engine_jobs
from tests.engine.acting import Outage, event_names, job, until, value

pytestmark = pytest.mark.asyncio

SETTINGS: dict[str, Any] = {"slots": 1, "heartbeat_s": 20}


def cancel_from_elsewhere(url: str, job_id: str) -> float:
    """Cancels as another process would, through a store of its own; when, on the monotonic clock."""
    other = open_at(url)
    try:
        other.write_sync(cancel_job, job_id, "changed my mind")
        return time.monotonic()
    finally:
        other.close()


@pytest.mark.rule("CAN-01", "CAN-02", "CAN-04")
async def test_an_async_handler_is_cancelled_at_its_await_within_a_second(store_url: str) -> None:
    app = App(store_url, **SETTINGS)
    waiting = asyncio.Event()
    heard: list[float] = []

    @app.job
    async def wait() -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append(time.monotonic())
            raise

    took = []
    async with app.running():
        for _ in range(3):
            waiting.clear()
            handle = await app.enqueue("wait")
            await asyncio.wait_for(waiting.wait(), 20)
            at = await asyncio.to_thread(cancel_from_elsewhere, store_url, handle.id)
            ended = await until(lambda: (result := job(app.store, handle.id)).run and result.run.status and result)  # noqa: B023
            took.append(heard.pop() - at)
            assert ended.status is JobStatus.CANCELLED
            assert (ended.run.status, ended.run.error_kind, ended.retried_by) == ("FAILED", "cancelled", None)
            assert ended.finished_at <= ended.run.finished_at
            assert event_names(app.store, handle.id).count("job.cancelled") == 1
    # The machine may be busy, but not three times in a row.
    assert min(took) < 1.0
    app.close()


@pytest.mark.rule("CAN-02", "CAN-03", "CAN-04", "CON-002", "INV-006")
async def test_a_thread_that_does_not_end_keeps_its_slot_its_lease_and_its_group_waiting(store_url: str) -> None:
    app = App(store_url, **SETTINGS)
    begun, stop_seen, may_end = threading.Event(), threading.Event(), threading.Event()

    @app.job
    def stubborn(ctx: Context) -> str:
        begun.set()
        while not ctx.cancelled:
            time.sleep(0.01)
        stop_seen.set()
        may_end.wait(60)
        return "too late"

    @app.job
    async def after() -> None: ...

    async with app.running():
        group, members = await app.group([app.call("stubborn"), app.call("after")], on_failure="continue")
        await asyncio.to_thread(begun.wait, 20)
        other = await app.enqueue("after")
        app.store.write_sync(cancel_job, members[0].id)
        assert await asyncio.to_thread(stop_seen.wait, 20)
        cancelled = job(app.store, members[0].id)
        assert (cancelled.status, cancelled.run and cancelled.run.status) == (JobStatus.CANCELLED, None)
        await app._supervisor.dispatcher.step()  # type: ignore[union-attr]
        assert value(app.store, "SELECT count(*) FROM leases") == 1
        assert job(app.store, members[1].id).status is JobStatus.QUEUED
        assert job(app.store, other.id).status is JobStatus.QUEUED
        assert app.store.read_sync(load_group, group.id)[0].status == "RUNNING"
        may_end.set()
        assert (await members[1].wait(20)).status is JobStatus.COMPLETED
        assert (await other.wait(20)).status is JobStatus.COMPLETED
        closed = job(app.store, members[0].id)
        assert closed.run is not None
        assert (closed.status, closed.run.status, closed.run.error_kind) == ("CANCELLED", "FAILED", "cancelled")
        assert app.store.read_sync(load_group, group.id)[0].status == "PARTIAL"
    app.close()


@pytest.mark.rule("CAN-02", "CAN-03")
@pytest.mark.parametrize("manner", ["polite", "unsubscribe"])
async def test_a_process_gets_sigterm_and_after_its_grace_sigkill(store_url: str, tmp_path: Path, manner: str) -> None:
    app = App(store_url, **SETTINGS)
    app.job_with(getattr(engine_jobs, manner), isolation="process", cancel_grace=0.5, retries=0)
    mark = tmp_path / "mark"
    async with app.running():
        handle = await app.enqueue(manner, mark=str(mark))
        await until(lambda: mark.exists() and mark.read_text() == "begun")
        app.store.write_sync(cancel_job, handle.id)
        ended = await until(lambda: (result := job(app.store, handle.id)).run and result.run.status and result)
    assert mark.read_text() == ("told" if manner == "polite" else "begun")
    assert (ended.status, ended.run.error_kind) == (JobStatus.CANCELLED, "cancelled")
    assert value(app.store, "SELECT count(*) FROM leases") == 0
    app.close()


@pytest.mark.rule("CAN-01")
async def test_a_success_after_the_cancel_does_not_count_and_one_before_it_refuses_the_cancel(store_url: str) -> None:
    app = App(store_url, **SETTINGS)
    begun, gate = asyncio.Event(), asyncio.Event()

    @app.job
    async def finish() -> str:
        begun.set()
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return "done"

    async with app.running():
        handle = await app.enqueue("finish")
        await asyncio.wait_for(begun.wait(), 20)
        app.store.write_sync(cancel_job, handle.id)
        gate.set()
        late = await until(lambda: (result := job(app.store, handle.id)).run and result.run.status and result)
        assert (late.status, late.run.status, late.run.error_kind) == ("CANCELLED", "FAILED", "cancelled")
        early = await (await app.enqueue("finish")).wait(20)
        with pytest.raises(Exception, match="ended"):
            app.store.write_sync(cancel_job, early.id)
        assert job(app.store, early.id).status is JobStatus.COMPLETED
    app.close()


@pytest.mark.rule("CAN-05")
async def test_a_look_that_fails_leaves_the_handler_alone_and_the_next_one_finds_the_cancel(
    store_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(store_url, **SETTINGS)
    begun = asyncio.Event()

    @app.job
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with app.running():
        supervisor = app._supervisor
        assert supervisor is not None
        watch = next(service for service in supervisor.services if isinstance(service, CancelWatch))
        handle = await app.enqueue("wait")
        await asyncio.wait_for(begun.wait(), 20)
        await watch.stop()
        outage = Outage(app.store, request, monkeypatch)
        if not store_url.startswith("sqlite"):
            # Readers of a SQLite file are not stopped by a writer: there is no failed look there to be made.
            with outage.during(), pytest.raises(Exception, match="cannot be reached"):
                await watch.step()
            assert supervisor.dispatcher.running.entries()[0].stop.reason is None
        await until(lambda: _tried(app, handle.id))
        await watch.start()
        ended = await until(lambda: (result := job(app.store, handle.id)).run and result.run.status and result)
        assert ended.run.error_kind == "cancelled"
    app.close()


def _tried(app: App, job_id: str) -> bool:
    try:
        app.store.write_sync(cancel_job, job_id)
    except Exception:
        return False
    return True
