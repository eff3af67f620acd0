"""Handlers that sleep and wait: their runs end, no slot is held, and they go on where they were."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdbeat import App, Context, PermanentFailure, SignalTimeout, SyncContext
from holdbeat.domain.job import Job, JobStatus
from holdbeat.store.jobs.edit_job import change_job
from tests.engine import durable_jobs
from tests.engine.acting import rows, until, value
from tests.engine.durable_jobs import lines, note

pytestmark = pytest.mark.asyncio

FAST: dict[str, Any] = {"slots": 1, "concurrency": "unlimited", "heartbeat_s": 1, "lease_s": 10, "suspend_s": 0.05}


def make_app(url: str, **changes: Any) -> App:
    app = App(url, **{**FAST, **changes})
    app.job(name="thread", retries=0)(durable_jobs.waiter)
    app.job(name="task", retries=0)(durable_jobs.async_waiter)
    app.job(name="process", retries=0, isolation="process")(durable_jobs.waiter)
    app.job(name="process-task", retries=0, isolation="process")(durable_jobs.async_waiter)
    return app


def result(job: Job) -> Any:
    assert job.run is not None
    assert job.status is JobStatus.COMPLETED, job.run.error
    return job.run.result


LATEST = datetime.max.replace(tzinfo=UTC)


@pytest.mark.rule("WAIT-01", "WAIT-02", "WAIT-03", "STEP-01", "WAIT-08")
@pytest.mark.parametrize("kind", ["thread", "task", "process", "process-task"])
async def test_a_handler_sleeps_waits_and_goes_on_with_its_steps_kept(
    kind: str, store_url: str, tmp_path: Path
) -> None:
    app = make_app(store_url)
    effects = str(tmp_path / "effects")
    async with app.running():
        handle = await app.enqueue(kind, path=effects)
        await until(lambda: value(app.store, "SELECT count(*) FROM jobs WHERE hold = 1 AND waits IS NOT NULL "
                                             "AND (SELECT count(*) FROM jobs) = 3"))  # fmt: skip
        assert value(app.store, "SELECT count(*) FROM leases") == 0
        await app.signal(handle.id, "go", {"by": "ann"})
        job = await handle.wait(40)
    assert result(job) == ["TWO", {"by": "ann"}]
    assert lines(effects) == ["call", "one", "call", "call", "two"]
    assert rows(app.store, "SELECT status, retry_kind, attempt FROM jobs ORDER BY id") == [
        ("CONTINUED", None, 0),
        ("CONTINUED", "continue", 0),
        ("COMPLETED", "continue", 0),
    ]
    app.close()


@pytest.mark.rule("WAIT-02", "WAIT-01")
async def test_a_handler_whose_sleep_was_ended_by_hand_goes_on(store_url: str) -> None:
    app = App(store_url, **FAST)

    @app.job(retries=0)
    async def sleeper(ctx: Context) -> str:
        await ctx.sleep("10d")
        return "awake"

    async with app.running():
        handle = await app.enqueue(sleeper)
        await until(lambda: value(app.store, "SELECT count(*) FROM jobs WHERE hold = 1"))
        await app.store.write(change_job, handle.id, {"not_before": None})
        assert result(await handle.wait(20)) == "awake"
    assert value(app.store, "SELECT count(*) FROM jobs") == 2, "it did not sleep again"
    app.close()


@pytest.mark.rule("WAIT-02")
async def test_a_short_sleep_happens_in_place(store_url: str) -> None:
    app = App(store_url, **{**FAST, "suspend_s": 5})

    @app.job(retries=0)
    async def naps(ctx: Context) -> str:
        await ctx.sleep(0.05)
        await ctx.sleep_until(datetime.now(UTC) + timedelta(seconds=0.05))
        return "awake"

    @app.job(retries=0)
    def naps_plainly(ctx: SyncContext) -> str:
        ctx.sleep("50ms")
        return "awake"

    async with app.running():
        for kind in (naps, naps_plainly):
            assert result(await (await app.enqueue(kind)).wait(20)) == "awake"
    assert value(app.store, "SELECT count(*) FROM jobs") == 2
    app.close()


@pytest.mark.rule("WAIT-03")
async def test_a_loop_of_reminders_ends_with_the_signal_that_comes_at_last(store_url: str, tmp_path: Path) -> None:
    app = App(store_url, **FAST)
    effects = str(tmp_path / "effects")

    @app.job(retries=0)
    async def reminding(ctx: Context) -> Any:
        for number in range(50):
            try:
                return await ctx.wait_for("paid", timeout=0.2)
            except SignalTimeout:
                await ctx.step("remind", note, effects, f"reminder {number}")
        return "never"

    async with app.running():
        handle = await app.enqueue(reminding)
        await until(lambda: len(lines(effects)) >= 3)
        await app.signal(handle.id, "paid", 100)
        assert result(await handle.wait(40)) == 100
    reminders = lines(effects)
    assert reminders == [f"reminder {number}" for number in range(len(reminders))]
    app.close()


@pytest.mark.rule("WAIT-01")
async def test_except_exception_does_not_catch_a_suspension(store_url: str) -> None:
    app = App(store_url, **FAST)

    @app.job(retries=0)
    async def careless(ctx: Context) -> str:
        try:
            await ctx.sleep(0.2)
        except Exception:
            return "caught"
        return "slept"

    async with app.running():
        assert result(await (await app.enqueue(careless)).wait(20)) == "slept"
    app.close()


@pytest.mark.rule("WAIT-01", "STEP-01")
async def test_parallel_waits_are_waited_for_together_and_an_open_step_is_kept_first(
    store_url: str, tmp_path: Path
) -> None:
    app = App(store_url, **FAST)
    effects = str(tmp_path / "effects")

    async def slow() -> str:
        await asyncio.sleep(0.3)
        return note(effects, "slow")

    @app.job(retries=0)
    async def parallel(ctx: Context) -> list[Any]:
        return list(
            await asyncio.gather(
                ctx.wait_for("a"), ctx.wait_for("b"), ctx.step("slow", slow), ctx.sleep(0.1), ctx.sleep(0.2)
            )
        )

    async with app.running():
        handle = await app.enqueue(parallel)
        await until(lambda: lines(effects))
        await app.signal(handle.id, "b", 2)
        await app.signal(handle.id, "a", 1)
        assert result(await handle.wait(40)) == [1, 2, "SLOW", None, None]
    assert lines(effects) == ["slow"]
    app.close()


@pytest.mark.rule("STEP-08")
async def test_a_direct_request_cannot_wait_for_long(store_url: str) -> None:
    app = App(store_url, **FAST)

    @app.job(timeout=2)
    async def direct(ctx: Context) -> list[str]:
        refusals = []
        for call in (ctx.sleep(60), ctx.wait_for("go")):
            try:
                await call
            except Exception as error:
                refusals.append(str(error))
        await ctx.sleep(0.1)
        return refusals

    async with app.running():
        refusals = await app.direct(direct)
    assert ["cannot sleep for 60 s" in refusals[0], "cannot wait for a signal" in refusals[1]] == [True, True]
    app.close()


@pytest.mark.rule("WAIT-02", "WAIT-03")
async def test_a_wait_whose_end_no_calendar_has_is_refused_where_it_is_asked_for(store_url: str) -> None:
    app = App(store_url, **FAST)

    @app.job(retries=0)
    async def patient(ctx: Context) -> list[str]:
        refusals = []
        for call in (ctx.sleep(1e18), ctx.wait_for("go", timeout="999999999999w"), ctx.sleep_until(LATEST)):
            try:
                await call
            except Exception as error:
                refusals.append(str(error))
        return refusals

    async with app.running():
        done = await (await app.enqueue(patient)).wait(20)
    assert done.run is not None and done.run.result == [
        "duration must be a number from 0 to 315360000.",
        "timeout must be a number from 0 to 315360000.",
        "at must lie between the years 1970 and 9000.",
    ]
    app.close()


@pytest.mark.rule("STEP-01", "WAIT-01", "WAIT-06")
async def test_a_wait_inside_the_function_of_a_step_suspends_the_run(store_url: str, tmp_path: Path) -> None:
    app = App(store_url, **FAST)
    effects = str(tmp_path / "effects")

    @app.job
    async def child() -> int:
        return 5

    @app.job(retries=0)
    async def parent(ctx: Context) -> list[Any]:
        async def innermost() -> list[Any]:
            first = await ctx.step("first", note, effects, "first")
            await ctx.sleep(0.2)
            return [first, await ctx.run(child)]

        async def middle() -> list[Any]:
            return await ctx.step("innermost", innermost)

        async def other() -> str:
            return str(await ctx.wait_for("go"))

        found = await asyncio.gather(
            ctx.step("middle", middle), ctx.step("other", other), ctx.step("beside", note, effects, "beside")
        )
        return list(found)

    async with app.running():
        handle = await app.enqueue(parent)
        await app.signal(handle.id, "go", "on")
        assert result(await handle.wait(20)) == [["FIRST", 5], "on", "BESIDE"]
    assert sorted(lines(effects)) == ["beside", "first"], "steps that ended were kept"
    app.close()


@pytest.mark.rule("WAIT-01", "WAIT-06")
@pytest.mark.parametrize("then", ["return", "raise"])
async def test_a_handler_that_takes_the_suspension_for_a_value_or_a_failure_has_not_ended(
    store_url: str, then: str
) -> None:
    app = App(store_url, **FAST)

    @app.job
    async def child(number: int) -> int:
        await asyncio.sleep(0.05)
        return number

    @app.job(retries=0)
    async def parent(ctx: Context) -> list[int]:
        calls = [ctx.run(child, number=number) for number in range(3)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        if then == "raise" and any(isinstance(one, BaseException) for one in found):
            raise PermanentFailure("a child failed")
        return [one for one in found if not isinstance(one, BaseException)]

    async with app.running():
        assert result(await (await app.enqueue(parent)).wait(20)) == [0, 1, 2]
    app.close()


@pytest.mark.rule("STEP-01", "WAIT-03")
async def test_a_handler_that_waits_for_the_first_of_a_step_and_a_signal_ends_with_the_step(store_url: str) -> None:
    app = App(store_url, **FAST)

    @app.job(retries=0)
    async def race(ctx: Context) -> Any:
        step = asyncio.ensure_future(ctx.step("work", asyncio.sleep, 0.1, "worked"))
        stop = asyncio.create_task(ctx.wait_for("stop"))
        done, _ = await asyncio.wait([step, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        return done.pop().result()

    async with app.running():
        assert result(await (await app.enqueue(race)).wait(20)) == "worked"
    assert value(app.store, "SELECT count(*) FROM jobs") == 1
    app.close()


async def test_an_instant_that_is_none_is_refused_with_a_sentence(store_url: str) -> None:
    app = App(store_url, **FAST)

    @app.job(retries=0)
    async def late(ctx: Context) -> None:
        await ctx.sleep_until("2030-01-01T00:00:00Z")  # type: ignore[arg-type]

    async with app.running():
        job = await (await app.enqueue(late)).wait(20)
    assert job.run is not None and "sleep_until needs an instant with a time zone" in str(job.run.error)
    app.close()
