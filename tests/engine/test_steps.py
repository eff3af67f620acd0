"""Steps in handlers: called once to their end in a chain, whatever becomes of its runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import pytest

from holdbeat import App, Context, SyncContext
from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.job import Job, JobStatus, RetryPolicy
from tests.engine import durable_jobs
from tests.engine.acting import rows, until, value
from tests.engine.durable_jobs import lines, note, note_async

pytestmark = pytest.mark.asyncio

FAST: dict[str, Any] = {"slots": 8, "concurrency": "unlimited", "heartbeat_s": 1, "lease_s": 10}
AT_ONCE = RetryPolicy(max_attempts=3, base_delay_s=0)


async def run(app: App, job_type: Callable[..., Any] | str, **params: Any) -> Job:
    """The end of a job's chain."""
    async with app.running():
        return await (await app.enqueue(job_type, **params)).wait(40)


def result(job: Job) -> Any:
    assert job.run is not None
    assert job.status is JobStatus.COMPLETED, job.run.error
    return job.run.result


def make_app(url: str) -> App:
    app = App(url, **FAST)
    app.job(name="thread", retries=AT_ONCE)(durable_jobs.plain)
    app.job(name="task", retries=AT_ONCE)(durable_jobs.coroutine)
    app.job(name="process", retries=AT_ONCE, isolation="process")(durable_jobs.plain)
    app.job(name="process-task", retries=AT_ONCE, isolation="process")(durable_jobs.coroutine)
    app.job(name="large", retries=AT_ONCE, isolation="process")(durable_jobs.large)
    return app


@pytest.mark.rule("STEP-01", "STEP-02")
@pytest.mark.parametrize("kind", ["thread", "task", "process", "process-task"])
async def test_a_retry_gets_the_kept_value_and_does_not_call_again(kind: str, store_url: str, tmp_path: Path) -> None:
    app = make_app(store_url)
    effects = str(tmp_path / "effects")
    job = await run(app, kind, path=effects, fail_at=2)
    assert result(job) == ["ONE", "TWO", "TWO AGAIN"]
    assert job.attempt == 2
    assert lines(effects) == ["one", "two", "two again"]
    names = rows(app.store, "SELECT name, run_id FROM steps WHERE root_id = :id ORDER BY name", id=job.chain_id)
    assert [name for name, _ in names] == ["one", "two", "two#2"]
    assert len({run_id for _, run_id in names}) == 2
    app.close()


@pytest.mark.rule("STEP-01", "STEP-04")
async def test_a_value_that_is_longer_than_a_pipe_comes_back_whole(store_url: str, tmp_path: Path) -> None:
    app = make_app(store_url)
    effects = str(tmp_path / "effects")
    assert result(await run(app, "large", path=effects)) == 2000
    assert lines(effects) == ["large"]
    app.close()


@pytest.mark.rule("STEP-02")
async def test_a_hundred_parallel_steps_in_random_order_get_their_own_values(store_url: str, tmp_path: Path) -> None:
    app = App(store_url, **FAST)
    calls: list[int] = []

    async def square(number: int) -> int:
        await asyncio.sleep(random.random() / 50)
        calls.append(number)
        return number * number

    @app.job(retries=AT_ONCE)
    async def squares(ctx: Context) -> list[int]:
        order = random.sample(range(100), 100)
        kept = dict(zip(order, await asyncio.gather(*(ctx.step(f"n{n}", square, n) for n in order)), strict=True))
        if ctx.attempt < 2:
            raise RuntimeError("once more")
        return [kept[number] for number in range(100)]

    assert result(await run(app, squares)) == [number * number for number in range(100)]
    assert sorted(calls) == list(range(100))
    app.close()


@pytest.mark.rule("STEP-02")
async def test_two_open_steps_of_one_name_are_refused_with_a_sentence(store_url: str) -> None:
    app = App(store_url, **FAST)

    @app.job(retries=0)
    async def twice(ctx: Context) -> None:
        await asyncio.gather(ctx.step("same", asyncio.sleep, 0.2), ctx.step("same", asyncio.sleep, 0.2))

    job = await run(app, twice)
    assert job.run is not None
    assert (job.status, job.run.status) == ("FAILED", "FAILED")
    assert "Give each its own name" in str(job.run.error)
    app.close()


@pytest.mark.rule("STEP-04")
async def test_a_function_that_raises_keeps_nothing_and_is_repeated_as_asked(store_url: str) -> None:
    app = App(store_url, **FAST)
    calls = []

    async def shaky() -> str:
        calls.append("shaky")
        if len(calls) < 3:
            raise OSError("not yet")
        return "done"

    @app.job(retries=0)
    async def patient(ctx: Context) -> str:
        with pytest.raises(OSError, match="not yet"):
            await ctx.step("shaky", shaky)
        with pytest.raises(TimeoutError):
            await ctx.step("slow", asyncio.sleep, 30, timeout=0.05)
        with pytest.raises(HoldbeatError, match="cannot be stopped"):
            await ctx.step("plain", len, "abc", timeout=1)
        with pytest.raises(HoldbeatError, match=r"^step 'bytes' is bytes"):
            await ctx.step("bytes", bytes, 3)
        with pytest.raises(HoldbeatError, match=r"^step 'huge' is larger than"):
            await ctx.step("huge", str.ljust, "x", 11_000_000)
        return await ctx.step("shaky", shaky, retries=2, delay=0.01)

    job = await run(app, patient)
    assert result(job) == "done"
    assert len(calls) == 3
    assert rows(app.store, "SELECT name FROM steps") == [("shaky#2",)]
    app.close()


@pytest.mark.rule("STEP-03", "LEASE-03")
@pytest.mark.parametrize("kind", ["task", "thread"])
async def test_the_handler_of_a_lost_run_ends_at_its_next_step(kind: str, store_url: str, tmp_path: Path) -> None:
    app = App(store_url, **FAST)
    effects = str(tmp_path / "effects")

    def lose(ctx: Context) -> None:
        note(effects, "called")
        app.store.write_sync(lambda tx: tx.execute("UPDATE leases SET fence = fence + 1 WHERE id = :id", id=ctx.run_id))

    @app.job(name="task", retries=0)
    async def task(ctx: Context) -> None:
        await ctx.step("lose", lose, ctx)
        note(effects, "went on")

    @app.job(name="thread", retries=0)
    def thread(ctx: SyncContext) -> None:
        try:
            ctx.step("lose", lose, ctx)
        except Exception:
            note(effects, "swallowed")
        note(effects, "went on")

    async with app.running():
        handle = await app.enqueue(kind)
        await until(lambda: value(app.store, "SELECT count(*) FROM events WHERE name = 'lease.stale_result'"))
    assert lines(effects) == ["called"]
    assert rows(app.store, "SELECT count(*) FROM steps WHERE root_id = :id", id=handle.id) == [(0,)]
    app.close()


@pytest.mark.rule("STEP-08")
async def test_in_a_direct_request_steps_run_and_are_not_kept(store_url: str, tmp_path: Path) -> None:
    app = App(store_url, **FAST)
    effects = str(tmp_path / "effects")

    @app.job
    async def direct(ctx: Context) -> str:
        return await ctx.step("one", note_async, effects, "one")

    async with app.running():
        assert await app.direct(direct) == "ONE"
    assert rows(app.store, "SELECT count(*) FROM steps") == [(0,)]
    app.close()


@pytest.mark.rule("STEP-07")
async def test_a_first_attempt_reads_no_steps_and_a_run_without_steps_asks_nothing(store_url: str) -> None:
    app = App(store_url, **FAST)
    asked: list[str] = []

    @app.job(retries=AT_ONCE)
    async def counted(ctx: Context, steps: int) -> int:
        assert ctx.keeper is not None
        keeper = ctx.keeper

        class Watched:
            async def ask_async(self, request: dict[str, Any]) -> Any:
                asked.append(request["do"])
                return await keeper.ask_async(request)

            async def keep_async(self, *step: Any) -> str | None:
                asked.append("keep")
                return await keeper.keep_async(*step)

        ctx.keeper = Watched()  # type: ignore[assignment]
        for number in range(steps):
            await ctx.step(f"n{number}", str, number)
        if steps and ctx.attempt == 0:
            raise RuntimeError("once more")
        return steps

    await run(app, counted, steps=0)
    assert asked == []
    await run(app, counted, steps=3)
    assert asked == ["keep", "keep", "keep", "kept"]
    app.close()


@pytest.mark.rule("STEP-01")
async def test_a_type_checker_knows_the_value_of_a_step_and_the_arguments_of_its_function(store_url: str) -> None:
    """What it says is proved by the type check of this file: an error that is not there is one, too."""
    app = App(store_url, **FAST)

    def pages(count: int) -> list[str]:
        return ["page"] * count

    async def size(texts: list[str], *, factor: int = 1) -> dict[str, int]:
        return {"size": factor * len(texts)}

    @app.job(retries=0)
    async def typed(ctx: Context) -> dict[str, int]:
        texts = assert_type(await ctx.step("pages", pages, 2), list[str])
        assert_type(await ctx.step("again", size, texts, retries=2, timeout="5s"), dict[str, int])
        with pytest.raises(TypeError):
            await ctx.step("wrong", pages, "two")  # type: ignore[call-overload]
        return assert_type(await ctx.step("size", size, texts, factor=3), dict[str, int])

    @app.job(retries=0)
    def plain(ctx: SyncContext) -> list[str]:
        return assert_type(ctx.step("pages", pages, 1), list[str])

    async with app.running():
        done = [await (await app.enqueue(job)).wait(20) for job in (typed, plain)]
    assert [job.run and job.run.result for job in done] == [{"size": 6}, ["page"]]
    app.close()
