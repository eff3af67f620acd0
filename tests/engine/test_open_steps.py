"""What a job does now: `explain`, the steps and the job itself name the step in progress, in every kind of handler."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdbeat import App, JobHandle
from holdbeat.domain.address import OutboundPolicy
from holdbeat.domain.job import Job, JobStatus, RetryPolicy
from holdbeat.domain.lease import Lease
from holdbeat.domain.views import job_json
from holdbeat.engine.run_reports import RunReports
from holdbeat.observe.explain import explain_job
from holdbeat.operations.durable import list_steps
from holdbeat.operations.operation import OperationContext
from holdbeat.store.reads.jobs import load_job
from tests.engine import durable_jobs
from tests.engine.acting import rows, until

pytestmark = pytest.mark.asyncio

FAST: dict[str, Any] = {"slots": 8, "concurrency": "unlimited", "heartbeat_s": 1, "lease_s": 10}
CONTEXT = OperationContext(None, True, lambda tx: OutboundPolicy(loopback_server=True))
KINDS = ("thread", "task", "process")


def make_app(url: str) -> App:
    app = App(url, **FAST)
    once = RetryPolicy(max_attempts=0)
    app.job(name="thread", retries=once)(durable_jobs.held_step)
    app.job(name="task", retries=once)(durable_jobs.held_step_async)
    app.job(name="process", retries=once, isolation="process")(durable_jobs.held_step)
    return app


@pytest.mark.rule("STEP-05")
async def test_a_job_names_the_step_in_which_it_is_and_in_which_it_failed(store_url: str, tmp_path: Path) -> None:
    app = make_app(store_url)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    async with app.running():
        handles = [await app.enqueue(kind, path=str(pipe)) for kind in KINDS]
        with pipe.open("rb+", buffering=0) as control:
            await until(lambda: all(in_step(app, handle) for handle in handles))
            for handle in handles:
                job = app.store.read_sync(load_job, handle.id)
                assert [step["name"] for step in job_json(job)["open_steps"]] == ["held"]
                assert job.progress is None
                explanation = app.store.read_sync(explain_job, handle.id)
                assert "It has been in the step 'held' since" in explanation["summary"]
                assert "The last step done is 'first'" in explanation["summary"]
                items = app.store.read_sync(list_steps, CONTEXT, handle.id)["items"]
                assert [(step["name"], step["duration_s"] is None) for step in items] == [
                    ("first", False),
                    ("held", True),
                ]
            control.write(b"." * len(KINDS))
            for handle in handles:
                failed = await handle.wait(20)
                assert failed.status is JobStatus.FAILED
                explanation = app.store.read_sync(explain_job, failed.id)
                assert "did not complete the step 'held' begun at " in explanation["summary"]
    app.close()


@pytest.mark.rule("STEP-05", "STEP-07")
async def test_steps_that_end_soon_are_not_announced(store_url: str, tmp_path: Path) -> None:
    """A step costs one commit; an announcement would be a second."""
    app = make_app(store_url)
    app.job(name="quick")(durable_jobs.plain)
    async with app.running():
        handle: JobHandle = await app.enqueue("quick", path=str(tmp_path / "effects"))
        job: Job = await handle.wait(20)
    assert job.status is JobStatus.COMPLETED
    assert rows(app.store, "SELECT run_id FROM progress") == []
    app.close()


@pytest.mark.rule("STEP-07")
async def test_only_the_first_step_of_a_run_wakes_the_flush(store_url: str) -> None:
    """Each wake-up costs the event loop as much as the rest of a step."""
    app = make_app(store_url)
    reports = RunReports(app.store, None)
    woken: list[int] = []
    reports.on_first = lambda: woken.append(1)
    now = app.store.clock.now()
    run = reports.of(Lease("run", "worker", 0, "default", "task", 1, now, now, now))
    for number in range(50):
        run.open_steps()[f"page {number}"] = now
        del run.open_steps()[f"page {number}"]
    assert len(woken) == 1
    assert await reports.flush() == 0
    run.open_steps()["long"] = now - timedelta(seconds=1)
    assert len(woken) == 1 and await reports.flush() == 1
    run.close()
    assert reports.is_empty
    app.close()


def in_step(app: App, handle: JobHandle) -> bool:
    return any(step.name == "held" for step in app.store.read_sync(load_job, handle.id).open_steps)
