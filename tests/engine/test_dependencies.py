"""Jobs that depend on others, from Python: named by handles, groups, ids and calls of one batch."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat import App, Context
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import Hold, JobStatus
from holdbeat.job_handle import JobHandle
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.reads.jobs import load_job
from tests.engine import durable_jobs

pytestmark = pytest.mark.asyncio

FAST: dict[str, Any] = {"slots": 2, "concurrency": "unlimited", "heartbeat_s": 1, "lease_s": 10}


def make_app(url: str) -> App:
    app = App(url, **FAST)
    app.job(name="thread", retries=0)(durable_jobs.reads_upstream)
    app.job(name="task", retries=0)(durable_jobs.reads_upstream_async)
    app.job(name="process", retries=0, isolation="process")(durable_jobs.reads_upstream)

    @app.job(retries=0)
    async def crawl(ctx: Context, site: str) -> list[str]:
        return [f"{site}/1", f"{site}/2"]

    @app.job(retries=0)
    async def breaks(ctx: Context) -> None:
        raise RuntimeError("broken")

    @app.job(retries=0)
    async def total(ctx: Context) -> int:
        return sum(len(result) for result in ctx.upstream.values())

    return app


@pytest.mark.rule("DEP-03")
@pytest.mark.parametrize("kind", ["thread", "task", "process"])
async def test_a_handler_reads_the_results_of_what_it_waited_for_by_name(kind: str, store_url: str) -> None:
    app = make_app(store_url)
    pages = app.call("crawl", site="a.example")
    broken = app.call("breaks")
    report = app.with_options(after={"pages": pages, "broken": broken}, on_upstream="run").call(kind)
    handles = await app.enqueue_many([pages, broken, report])
    assert handles[2].job.hold is Hold.BLOCKED
    async with app.running():
        job = await handles[2].wait(40)
    assert job.run is not None
    assert job.status is JobStatus.COMPLETED, job.run.error
    assert job.run.result == [["a.example/1", "a.example/2"], None, "FAILED", ["pages", "broken"]]
    app.close()


@pytest.mark.rule("DEP-02", "DEP-03")
@pytest.mark.parametrize("kind", ["thread", "task", "process"])
async def test_a_retry_by_hand_is_told_which_upstream_has_no_result(kind: str, store_url: str) -> None:
    app = make_app(store_url)
    pages = app.call("crawl", site="a.example")
    broken = app.call("breaks")
    report = app.with_options(after={"pages": pages, "broken": broken}).call(kind)
    _, broken_handle, handle = await app.enqueue_many([pages, broken, report])
    async with app.running():
        assert (await handle.wait(40)).status is JobStatus.CANCELLED
        retry = await app.store.write(retry_job, handle.id)
        job = await JobHandle(app.store, retry).wait(40)
    assert job.run is not None and job.status is JobStatus.FAILED
    assert f"The upstream 'broken' ({broken_handle.id}) has no result: it was FAILED." in str(job.run.error)
    app.close()


@pytest.mark.rule("DEP-01", "DEP-03")
async def test_handles_ids_and_groups_can_be_waited_for(store_url: str) -> None:
    app = make_app(store_url)
    first = await app.enqueue("crawl", site="a")
    second = await app.enqueue("crawl", site="b")
    group, _ = await app.group([app.call("crawl", site=site) for site in "cde"], mode="parallel")
    handle = await app.with_options(after=[first, second.id, group]).enqueue("total")
    async with app.running():
        job = await handle.wait(40)
    assert job.run is not None
    assert job.run.result == 2 + 2 + 3
    app.close()


@pytest.mark.rule("DEP-04")
async def test_a_call_that_is_not_stored_together_cannot_be_waited_for(store_url: str) -> None:
    app = make_app(store_url)
    with pytest.raises(Invalid, match="enqueue both together"):
        await app.with_options(after=app.call("crawl", site="a")).enqueue("total")
    with pytest.raises(Invalid, match="handles of jobs"):
        await app.with_options(after=[3]).enqueue("total")
    app.close()


@pytest.mark.rule("GRP-05")
async def test_the_job_after_a_group_reads_the_results_of_its_members(store_url: str) -> None:
    app = make_app(store_url)
    pages = [app.call("crawl", site=site) for site in "ab"]
    with pytest.raises(Invalid, match="Add then, or leave out then_when"):
        await app.group(pages, mode="parallel", then_when="always")
    group, _ = await app.group(pages, mode="parallel", then=app.call("total"), then_when="always")
    assert group.then_job_id is not None
    async with app.running():
        then = await app.store.read(load_job, group.then_job_id)
        job = await JobHandle(app.store, then).wait(40)
    assert job.run is not None
    assert job.run.result == 2
    app.close()
