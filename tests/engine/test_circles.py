"""Circles: a handler is refused a child that could start only after the handler itself has ended."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat import App, Context
from holdbeat.domain.job import Job, JobStatus
from holdbeat.job_handle import JobHandle
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.queue.groups import load_group
from tests.engine.acting import rows, until, value

pytestmark = pytest.mark.asyncio

FAST: dict[str, Any] = {"slots": 1, "concurrency": "unlimited", "heartbeat_s": 1, "lease_s": 10, "suspend_s": 0.05}


def result(job: Job) -> Any:
    assert job.run is not None
    assert job.status is JobStatus.COMPLETED, job.run.error
    return job.run.result


@pytest.mark.rule("DEP-04", "WAIT-06")
@pytest.mark.parametrize("through", ["itself", "another", "its group", "another group"])
async def test_a_child_that_waits_for_its_parent_cannot_be_waited_for(store_url: str, through: str) -> None:
    app = App(store_url, **FAST)

    @app.job
    async def child() -> int:
        return 5

    @app.job(retries=0)
    async def parent(ctx: Context) -> list[int]:
        assert ctx.job is not None
        upstream: Any = ctx.job.id
        if through == "another":
            upstream = await ctx.enqueue(app.with_options(after=[upstream]).call(child))
        elif through == "its group":
            upstream, _ = await app.store.read(load_group, str(ctx.job.group_id))
        elif through == "another group":
            upstream, _ = await app.group([app.with_options(after=[upstream]).call(child)])
        await ctx.enqueue(app.with_options(after=[upstream], labels={"not": "awaited"}).call(child))
        return [await ctx.run(app.with_options(after=[upstream]).call(child))]

    async with app.running():
        _, (handle,) = await app.group([app.call(parent)])
        job = await handle.wait(20)
        await until(lambda: value(app.store, "SELECT count(*) FROM jobs WHERE status = 'QUEUED'") == 0)
    assert job.run is not None and "would wait for the end of the" in str(job.run.error)
    stored = 3 if through.startswith("another") else 2
    assert value(app.store, "SELECT count(*) FROM jobs") == stored, "what is refused is not stored"
    app.close()


@pytest.mark.rule("DEP-04", "WAIT-06")
@pytest.mark.parametrize("through", ["itself", "another", "its group", "a later member"])
async def test_a_child_that_waits_for_a_grandparent_that_waits_cannot_be_waited_for(
    store_url: str, through: str
) -> None:
    app = App(store_url, **FAST)

    @app.job
    async def child() -> int:
        return 5

    @app.job(retries=0)
    async def parent(ctx: Context, group: str, grandparent: str) -> int:
        its_group, members = await app.store.read(load_group, group)
        upstream: Any = {"its group": its_group, "a later member": members[-1].id}.get(through, grandparent)
        if through == "another":
            upstream = await ctx.enqueue(app.with_options(after=[grandparent]).call(child))
        answer: int = await ctx.run(app.with_options(after=[upstream]).call(child))
        return answer

    @app.job(retries=0)
    async def grandparent(ctx: Context) -> int:
        assert ctx.job is not None
        answer: int = await ctx.run(parent, group=str(ctx.job.group_id), grandparent=ctx.job.chain_id)
        return answer

    async with app.running():
        _, (handle, _) = await app.group([app.call(grandparent), app.call(child)])
        job = await handle.wait(20)
    assert job.run is not None and "would wait for the end of" in str(job.run.error)
    app.close()


@pytest.mark.rule("DEP-04", "WAIT-06")
async def test_a_child_may_wait_for_a_grandparent_that_does_not_wait_for_it(store_url: str) -> None:
    app = App(store_url, **FAST)

    @app.job
    async def child() -> int:
        return 5

    @app.job(retries=0)
    async def parent(ctx: Context, upstream: str) -> int:
        answer: int = await ctx.run(app.with_options(after=[upstream]).call(child))
        return answer

    @app.job(retries=0)
    async def grandparent(ctx: Context) -> str:
        assert ctx.job is not None
        return await ctx.enqueue(parent, upstream=ctx.job.chain_id)

    async with app.running():
        made = result(await (await app.enqueue(grandparent)).wait(20))
        await until(lambda: value(app.store, "SELECT count(*) FROM jobs WHERE status = 'COMPLETED'") == 3)
    assert rows(app.store, f"SELECT count(*) FROM jobs WHERE root_id = '{made}' OR id = '{made}'") == [(2,)]
    app.close()


@pytest.mark.rule("DEP-04", "WAIT-06")
async def test_a_child_cannot_wait_for_a_later_member_of_a_group_whose_first_member_waits_for_its_parent(
    store_url: str,
) -> None:
    app = App(store_url, **FAST)

    @app.job
    async def child() -> int:
        return 5

    @app.job(retries=0)
    async def parent(ctx: Context) -> int:
        assert ctx.job is not None
        first = app.with_options(after=[ctx.job.chain_id], on_upstream="run").call(child)
        _, members = await app.group([first, app.call(child), app.call(child)], mode="sequential")
        answer: int = await ctx.run(app.with_options(after=[members[-1]]).call(child))
        return answer

    async with app.running():
        job = await (await app.enqueue(parent)).wait(20)
        await until(lambda: value(app.store, "SELECT count(*) FROM jobs WHERE status = 'COMPLETED'") == 3)
    assert job.run is not None and "would wait for the end of the job that waits for it" in str(job.run.error)
    app.close()


@pytest.mark.rule("DEP-04", "WAIT-06")
async def test_of_two_handlers_whose_children_wait_for_the_other_the_second_is_refused(
    store_url: str,
) -> None:
    """Each makes a child after the other and waits for it."""
    app = App(store_url, **{**FAST, "slots": 2})

    @app.job
    async def child() -> int:
        return 5

    @app.job(retries=0)
    async def waiter(ctx: Context, number: int) -> int:
        other = await ctx.wait_for("other")
        if number == 2:
            await until(lambda: value(app.store, "SELECT count(*) FROM jobs WHERE hold = 4 AND type = 'waiter'") == 1)
        answer: int = await ctx.run(app.with_options(after=[other], on_upstream="run").call(child))
        return answer

    async with app.running():
        handles = [await app.enqueue(waiter, number=number) for number in (1, 2)]
        for handle, other in zip(handles, reversed(handles), strict=True):
            await app.signal(handle.id, "other", other.id)
        second = await handles[1].wait(20)
        first = await handles[0].wait(20)
    assert second.run is not None and "would wait for the end of the job that waits for it" in str(second.run.error)
    assert result(first) == 5
    app.close()


@pytest.mark.rule("DEP-04", "WAIT-06")
async def test_a_child_may_wait_for_what_came_after_an_earlier_run_of_its_parent(store_url: str) -> None:
    app = App(store_url, **FAST)
    upstreams: list[JobHandle] = []

    @app.job
    async def child() -> int:
        return 5

    @app.job(retries=0)
    async def parent(ctx: Context) -> int:
        if not upstreams:
            raise RuntimeError("broken")
        answer: int = await ctx.run(app.with_options(after=upstreams).call(child))
        return answer

    async with app.running():
        handle = await app.enqueue(parent)
        report = await app.with_options(after=[handle], on_upstream="run").enqueue(child)
        assert result(await report.wait(20)) == 5
        upstreams.append(report)
        retry = await app.store.write(retry_job, handle.id)
        assert result(await JobHandle(app.store, retry).wait(20)) == 5
    app.close()


@pytest.mark.rule("DEP-04", "WAIT-06", "RET-04")
@pytest.mark.parametrize("through", ["itself", "another"])
async def test_a_child_that_waits_for_the_manual_retry_that_waits_for_it_is_refused(
    store_url: str, through: str
) -> None:
    app = App(store_url, **FAST)
    attempts: list[str] = []

    @app.job
    async def child() -> int:
        return 5

    @app.job(retries=0)
    async def parent(ctx: Context) -> int:
        assert ctx.job is not None
        attempts.append(ctx.job.id)
        if len(attempts) == 1:
            raise RuntimeError("broken")
        upstream = ctx.job.id
        if through == "another":
            upstream = await ctx.enqueue(app.with_options(after=[upstream]).call(child))
        answer: int = await ctx.run(app.with_options(after=[upstream]).call(child))
        return answer

    async with app.running():
        first = await (await app.enqueue(parent)).wait(20)
        retry = await app.store.write(retry_job, first.id)
        job = await JobHandle(app.store, retry).wait(20)
    assert job.run is not None and "would wait for the end of the job that waits for it" in str(job.run.error)
    app.close()


@pytest.mark.rule("DEP-04", "WAIT-06", "GRP-01")
async def test_a_manual_retry_may_wait_for_a_child_after_the_group_of_the_first_attempt(store_url: str) -> None:
    app = App(store_url, **FAST)
    groups: list[Any] = []

    @app.job
    async def child() -> int:
        return 5

    @app.job
    async def late(ctx: Context) -> None:
        await ctx.wait_for("go")

    @app.job(retries=0)
    async def parent(ctx: Context) -> int:
        if not groups:
            raise RuntimeError("broken")
        answer: int = await ctx.run(app.with_options(after=groups, on_upstream="run").call(child))
        return answer

    async with app.running():
        group, (first, other) = await app.group([app.call(parent), app.call(late)], on_failure="continue")
        assert (await first.wait(20)).status is JobStatus.FAILED
        groups.append(group)
        retry = await app.store.write(retry_job, first.id)
        await until(lambda: value(app.store, "SELECT count(*) FROM jobs WHERE type = 'child' AND hold = 5") == 1)
        await app.signal(other.id, "go")
        assert result(await JobHandle(app.store, retry).wait(20)) == 5
    app.close()
