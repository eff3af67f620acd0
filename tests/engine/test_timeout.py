"""At its timeout a handler is told, then killed if it can be; what it returns afterwards does not count."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdbeat import App, Context
from holdbeat.domain.job import JobStatus
from tests.engine import engine_jobs
from tests.engine.acting import event_names, job, until

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("TIM-01", "CAN-03")
@pytest.mark.parametrize("manner", ["async", "blocking", "returning", "thread", "process"])
async def test_a_run_beyond_its_timeout_ends_failed_however_the_handler_behaves(
    store_url: str, tmp_path: Path, manner: str
) -> None:
    app = App(store_url, heartbeat_s=20)

    async def wait() -> None:
        await asyncio.Event().wait()

    async def block() -> str:
        time.sleep(0.6)  # noqa: ASYNC251
        return "too late"

    async def return_all_the_same() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "too late"
        return "never"

    def look(ctx: Context) -> None:
        while True:
            ctx.checkpoint()
            time.sleep(0.01)

    functions: dict[str, Any] = {"async": wait, "blocking": block, "returning": return_all_the_same, "thread": look}
    params = {}
    if manner == "process":
        app.job_with(
            engine_jobs.unsubscribe, name="late", isolation="process", timeout=1.5, cancel_grace=0.2, retries=0
        )
        params = {"mark": str(tmp_path / "mark")}
    else:
        app.job_with(functions[manner], name="late", timeout=0.3, retries=0)
    async with app.running():
        ended = await (await app.enqueue("late", **params)).wait(30)
        assert ended.run is not None
        assert (ended.status, ended.run.status, ended.run.error_kind) == (JobStatus.FAILED, "FAILED", "timeout")
        assert ended.run.result is None
        await until(lambda: "run.overdue" in event_names(app.store, ended.id))
    assert event_names(app.store, ended.id).count("run.overdue") == 1
    app.close()


@pytest.mark.rule("TIM-01", "CAN-03", "CON-002")
async def test_a_thread_that_cannot_be_killed_stays_running_and_keeps_its_slot(store_url: str) -> None:
    app = App(store_url, heartbeat_s=20)
    may_end = threading.Event()

    @app.job(timeout=0.2, cancel_grace=0.1, retries=0)
    def stubborn() -> str:
        may_end.wait(60)
        return "too late"

    @app.job
    async def after() -> None: ...

    async with app.running():
        handle = await app.enqueue("stubborn")
        other = await app.enqueue("after")
        await until(lambda: "run.overdue" in event_names(app.store, handle.id))
        running = job(app.store, handle.id)
        assert (running.status, running.run and running.run.status) == (JobStatus.RUNNING, None)
        assert job(app.store, other.id).status is JobStatus.QUEUED
        may_end.set()
        ended = await handle.wait(30)
        assert ended.run is not None
        assert (ended.run.error_kind, ended.run.result) == ("timeout", None)
        assert (await other.wait(30)).status is JobStatus.COMPLETED
    app.close()
