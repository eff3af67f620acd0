"""A handler that waits for several things at once: for all of them, or for the first."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import pytest

from holdbeat import App, Context
from holdbeat.domain.job import JobStatus
from holdbeat.handlers.steps import Keeper
from holdbeat.observe.explain import explain_job
from tests.engine.acting import job, rows, until

pytestmark = pytest.mark.asyncio

FAST: dict[str, Any] = {"slots": 1, "concurrency": "unlimited", "heartbeat_s": 1, "lease_s": 10}


class SignalsLast:
    """The keeper of a run, which answers about signals when it has answered everything else."""

    def __init__(self, keeper: Keeper, others: int) -> None:
        self._keeper, self._others_left, self._answered = keeper, others, asyncio.Event()

    async def ask_async(self, request: dict[str, Any]) -> Any:
        answer = await self._keeper.ask_async(request)
        if request["do"] == "signal":
            await self._answered.wait()
        elif request["do"] in ("question", "child_state"):
            self._others_left -= 1
            if not self._others_left:
                self._answered.set()
        return answer


@pytest.mark.rule("WAIT-01", "WAIT-03", "WAIT-05", "WAIT-06")
async def test_waits_that_were_begun_together_are_waited_for_together(store_url: str) -> None:
    app = App(store_url, **FAST)

    @app.job(retries=0)
    async def child(ctx: Context, n: int) -> int:
        await ctx.wait_for("number")
        return n

    @app.job(retries=0)
    async def waits(ctx: Context) -> Any:
        assert ctx.keeper is not None
        ctx.keeper = SignalsLast(ctx.keeper, 3)  # type: ignore[assignment]
        calls = [ctx.wait_for("go"), ctx.ask("Send it?"), ctx.run(child, n=1), ctx.run(child, n=2), ctx.sleep("1h")]
        return await asyncio.gather(*calls)

    async with app.running():
        handle = await app.enqueue(waits)
        continuations = f"SELECT id FROM jobs WHERE retry_of = '{handle.id}'"
        ((following,),) = await until(lambda: rows(app.store, continuations))
        summary = (await app.store.read(explain_job, following))["summary"]
    assert "waits for the first of 5: " in summary
    app.close()


async def first_of(*calls: Coroutine[Any, Any, Any]) -> list[Any]:
    """The values of the calls that end first; the others are cancelled."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    ended, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    return [task.result() for task in tasks if task in ended]


def waits_now(app: App) -> set[str]:
    """The kinds of what the newest job waits for."""
    newest = job(app.store, rows(app.store, "SELECT max(id) FROM jobs")[0][0])
    return {wait["kind"] for wait in newest.waits or ()} if newest.waits_for else set()


async def signal_or_sleep(ctx: Context) -> Any:
    return await first_of(ctx.wait_for("go"), ctx.sleep("1h"))


@pytest.mark.rule("WAIT-01", "WAIT-03")
@pytest.mark.parametrize("isolation", [None, "process"])
async def test_the_first_of_several_waits_goes_on_without_the_others(store_url: str, isolation: Any) -> None:
    app = App(store_url, **FAST)
    app.job(name="waits", retries=0, isolation=isolation)(signal_or_sleep)
    async with app.running():
        handle = await app.enqueue("waits")
        await until(lambda: rows(app.store, f"SELECT id FROM jobs WHERE retry_of = '{handle.id}'"))
        await app.signal(handle.id, "go", "now")
        ended = await handle.wait(30)
    assert ended.status is JobStatus.COMPLETED and ended.run is not None
    assert ended.run.result == ["now"]
    assert rows(app.store, "SELECT count(*) FROM jobs") == [(2,)]
    app.close()


@pytest.mark.rule("WAIT-02", "WAIT-03")
async def test_a_short_sleep_goes_on_before_a_wait_ends_the_run(store_url: str) -> None:
    app = App(store_url, **FAST)

    @app.job(retries=0)
    async def waits(ctx: Context) -> Any:
        return await first_of(ctx.wait_for("never"), ctx.sleep(0.05))

    async with app.running():
        ended = await (await app.enqueue(waits)).wait(30)
    assert ended.run is not None and ended.run.result == [None]
    app.close()


@pytest.mark.rule("WAIT-03", "WAIT-06")
async def test_a_wait_that_the_handler_gave_up_is_not_waited_for(store_url: str) -> None:
    app = App(store_url, **FAST)

    @app.job(retries=0)
    async def waits(ctx: Context) -> Any:
        await first_of(ctx.wait_for("go"), ctx.sleep("1h"))
        return await ctx.ask("Send it?")

    async with app.running():
        handle = await app.enqueue(waits)
        await app.signal(handle.id, "go")
        await until(lambda: rows(app.store, "SELECT id FROM questions"))
        assert await until(lambda: waits_now(app)) == {"question"}
    app.close()


@pytest.mark.rule("WAIT-05", "STEP-01")
async def test_what_ends_first_is_worked_on_while_others_are_waited_for(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(store_url, **FAST)

    @app.job(retries=0)
    async def child(ctx: Context, n: int) -> int:
        await ctx.wait_for("end")
        return n

    @app.job(retries=0)
    async def parent(ctx: Context) -> Any:
        async def double(n: int) -> int:
            return 2 * n

        values = []
        for ended in asyncio.as_completed([ctx.run(child, n=1), ctx.run(child, n=2)]):
            n = await ended
            values.append(await ctx.step(f"double {n}", double, n))
        return sorted(values)

    async with app.running():
        handle = await app.enqueue(parent)
        waiting = "SELECT root_id FROM jobs WHERE type = 'child' AND waits IS NOT NULL"
        ids = await until(lambda: found if len(found := rows(app.store, waiting)) == 2 else None)
        children = {job(app.store, root_id).params["n"]: root_id for (root_id,) in ids}
        await app.signal(children[2], "end")
        await until(lambda: rows(app.store, "SELECT name FROM steps WHERE name = 'double 2'"))
        await app.signal(children[1], "end")
        ended = await handle.wait(30)
    assert ended.run is not None and ended.run.result == [2, 4]
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []
    app.close()


@pytest.mark.rule("WAIT-01", "WAIT-03")
async def test_waits_of_a_task_group_are_noted_together(store_url: str) -> None:
    app = App(store_url, **FAST)

    @app.job(retries=0)
    async def waits(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.wait_for("go"))
            group.create_task(ctx.sleep("1h"))

    async with app.running():
        await app.enqueue(waits)
        assert await until(lambda: waits_now(app)) == {"signal", "sleep"}
    app.close()
