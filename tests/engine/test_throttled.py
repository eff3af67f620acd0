"""Throttled runs in a running App: handlers that raise RateLimited, and http jobs that are answered 429 or 503."""

from __future__ import annotations

import asyncio

import pytest

from holdbeat import App, Context, RateLimited
from holdbeat.domain.job import Job
from holdbeat.job_handle import JobHandle
from holdbeat.store.reads.jobs import load_job
from tests.engine.engine_jobs import told_to_wait
from tests.engine.raw_server import http, serving

pytestmark = [pytest.mark.asyncio, pytest.mark.rule("LIM-06")]


def make_app(url: str) -> App:
    return App(
        url, slots=4, heartbeat_s=1, lease_s=10, concurrency="resources:api=4,http=4", outbound_allow=["127.0.0.1"]
    )


async def ended(app: App, handle: JobHandle) -> Job:
    """The job itself when it has ended, whatever follows it."""
    for _ in range(500):
        job = await app.store.read(load_job, handle.id)
        if job.status.is_terminal:
            return job
        await asyncio.sleep(0.02)
    raise TimeoutError(handle.id)


async def test_a_handler_that_raises_rate_limited_runs_again_then_and_others_wait(store_url: str) -> None:
    app = make_app(store_url)
    calls: list[tuple[str, float]] = []

    @app.job(resource="api", retries=1)
    async def call(ctx: Context, name: str) -> str:
        calls.append((name, asyncio.get_running_loop().time()))
        if len(calls) <= 2:
            raise RateLimited("too many", retry_after=0.5)
        return name

    async with app.running():
        first = await app.enqueue("call", name="first")
        failed = await ended(app, first)
        second = await app.enqueue("call", name="second")
        done = [await first.wait(), await second.wait()]
    app.close()
    assert failed.run is not None and (failed.run.error_kind, failed.run.error) == ("throttled", "too many")
    assert [job.status for job in done] == ["COMPLETED", "COMPLETED"]
    assert min(at for _, at in calls[1:]) - calls[0][1] >= 0.5


async def test_a_process_of_its_own_can_raise_it_too(store_url: str) -> None:
    app = make_app(store_url)
    app.job_with(told_to_wait, resource="api", retries=0, isolation="process")
    async with app.running():
        job = await (await app.enqueue("told_to_wait")).wait()
    app.close()
    assert job.run is not None and (job.run.error_kind, job.run.error) == ("throttled", "come back")


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
async def test_an_http_job_that_is_told_to_retry_after_is_throttled_and_so_is_its_host(
    store_url: str, status: str
) -> None:
    app = make_app(store_url)
    async with serving(http(b"", None, status, "Retry-After: 60")) as busy, serving(http(b"fine")) as other, \
            app.running():  # fmt: skip
        first = await app.enqueue("http", url=busy.url("/a"))
        failed = await ended(app, first)
        assert failed.run is not None and failed.run.error_kind == "throttled"
        assert failed.partition == f"127.0.0.1:{busy.port}"
        waiting = await app.enqueue("http", url=busy.url("/b"))
        done = await (await app.enqueue("http", url=other.url())).wait()
        assert done.status == "COMPLETED", "another host is called"
        assert (await app.store.read(load_job, waiting.id)).status == "QUEUED"
        assert len(busy.requests) == 1
    app.close()
