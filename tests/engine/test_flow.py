"""Weights, affinity and preemption in a running App."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from holdbeat import App, Context
from holdbeat.domain.job import Job
from holdbeat.engine.watches import PreemptionWatch
from holdbeat.job_handle import JobHandle
from tests.engine.acting import until, value

pytestmark = pytest.mark.asyncio


def make_app(url: str, **changes: Any) -> App:
    return App(url, **{"slots": 4, "heartbeat_s": 1, "lease_s": 10, **changes})


async def done(*handles: JobHandle) -> list[Job]:
    return [await handle.wait("20s") for handle in handles]


@pytest.mark.rule("LIM-09", "LIM-10")
async def test_a_heavy_handler_knows_all_its_slots_and_runs_alone(store_url: str) -> None:
    app = make_app(store_url, concurrency="resources:gpu=2")
    busy = 0

    @app.job(resource="gpu", weight=2, retries=0)
    async def big(ctx: Context) -> list[int]:
        assert busy == 0
        return list(ctx.slots)

    @app.job(resource="gpu", retries=0)
    async def small(ctx: Context) -> list[int]:
        nonlocal busy
        busy += 1
        await asyncio.sleep(0.05)
        busy -= 1
        return list(ctx.slots)

    async with app.running():
        handles = [await app.enqueue("small"), await app.enqueue("big"), await app.enqueue("small")]
        first, middle, last = await done(*handles)
        light = await (await app.with_options(weight=1).enqueue("big")).wait("20s")
    app.close()
    assert [job.status for job in (first, middle, last)] == ["COMPLETED"] * 3
    assert middle.run is not None and middle.run.result == [0, 1]
    assert light.run is not None and light.run.result == [0], "a submission may say another weight"


@pytest.mark.rule("LIM-11")
async def test_one_gpu_and_three_models_with_affinity_change_less_often(store_url: str) -> None:
    switches = {}
    for run in (1, 20):
        app = make_app(store_url, concurrency="resources:gpu=1", affinity_run=run)
        loaded: list[str] = []

        @app.job(resource="gpu", affinity="model", retries=0)
        async def write(model: str) -> None:
            loaded.append(model)  # noqa: B023 - called within this iteration of the loop

        handles = [await app.enqueue("write", model=model) for model in "abcabcabcabc"]
        async with app.running():
            jobs = await done(*handles)
        app.close()
        assert [job.affinity for job in jobs] == list("abcabcabcabc")
        switches[run] = sum(before != after for before, after in pairwise(loaded))
    assert switches == {1: 11, 20: 2}


@pytest.mark.rule("LIM-13", "STEP-01")
async def test_a_direct_request_preempts_a_batch_job_which_goes_on_from_its_last_step(store_url: str) -> None:
    app = make_app(store_url, concurrency="resources:gpu=1")
    began = asyncio.Event()
    calls: list[str] = []

    @app.job(resource="gpu", preemptible=True, retries=0)
    async def batch(ctx: Context) -> str:
        async def load() -> str:
            calls.append("load")
            return "loaded"

        state = await ctx.step("load", load)
        if not began.is_set():
            began.set()
            await asyncio.sleep(60)
        return f"{state} and done"

    @app.job(resource="gpu", retries=0)
    async def ask() -> str:
        return "answer"

    async with app.running():
        job = await app.enqueue("batch")
        await asyncio.wait_for(began.wait(), 10)
        answer = await asyncio.wait_for(app.with_options(preempt=True).direct("ask"), 10)
        (ended,) = await done(job)
    app.close()
    assert answer == "answer"
    assert ended.status == "COMPLETED" and ended.run is not None and ended.run.result == "loaded and done"
    assert calls == ["load"], "the step was kept"


@pytest.mark.rule("LIM-13")
async def test_without_preempt_a_direct_request_waits(store_url: str) -> None:
    app = make_app(store_url, concurrency="resources:gpu=1")
    began, may_end = asyncio.Event(), asyncio.Event()

    @app.job(resource="gpu", preemptible=True, retries=0)
    async def batch() -> str:
        began.set()
        await may_end.wait()
        return "whole"

    @app.job(resource="gpu", retries=0)
    async def ask() -> str:
        return "answer"

    async with app.running():
        job = await app.enqueue("batch")
        await asyncio.wait_for(began.wait(), 10)
        asking = asyncio.ensure_future(app.direct("ask"))
        await until(lambda: value(app.store, "SELECT count(*) FROM direct_reservations WHERE status = 'ACTIVE'"))
        assert await PreemptionWatch(app.store).step() == 0
        assert not asking.done()
        may_end.set()
        assert await asking == "answer"
        (ended,) = await done(job)
        assert ended.id == job.id and ended.run is not None and ended.run.result == "whole"
    app.close()
