"""A handler that waits for several things at once waits for all of them, whichever the store answers first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdbeat import App, Context
from holdbeat.handlers.steps import Keeper
from holdbeat.observe.explain import explain_job
from tests.engine.acting import rows, until

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
        elif request["do"] in ("question", "look"):
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
