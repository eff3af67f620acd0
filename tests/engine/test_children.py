"""Handlers with children: on one slot a parent waits for its child, and each child is made once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdbeat import App, Context
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import JobStatus
from tests.engine import durable_jobs
from tests.engine.acting import rows
from tests.engine.durable_jobs import lines

pytestmark = pytest.mark.asyncio

FAST: dict[str, Any] = {"slots": 1, "concurrency": "unlimited", "heartbeat_s": 1, "lease_s": 10}


def make_app(url: str) -> App:
    app = App(url, **FAST)
    app.job(name="thread", retries=0)(durable_jobs.parent)
    app.job(name="task", retries=0)(durable_jobs.parent_async)
    app.job(name="process", retries=0, isolation="process")(durable_jobs.parent)

    @app.job(retries=0)
    async def double(ctx: Context, n: int) -> int:
        return 2 * n

    @app.job(retries=0)
    async def breaks(ctx: Context) -> None:
        raise RuntimeError("broken")

    @app.job(retries=0)
    async def many(ctx: Context) -> list[int]:
        results: list[int] = await asyncio.gather(*[ctx.run(double, n=n) for n in range(5)])
        return results

    @app.job(retries=0)
    async def hands_over(ctx: Context) -> list[str]:
        mine = await ctx.enqueue(app.with_options(priority=7, delay="1h").call(double, n=1))
        return [mine, await ctx.enqueue(app.with_options(detached=True, delay="1h").call(double, n=2))]

    return app


@pytest.mark.rule("WAIT-06")
@pytest.mark.parametrize("kind", ["thread", "task", "process"])
async def test_on_one_slot_a_parent_gets_the_results_of_its_children(kind: str, store_url: str, tmp_path: Path) -> None:
    app = make_app(store_url)
    effects = str(tmp_path / "effects")
    async with app.running():
        handle = await app.enqueue(kind, path=effects)
        job = await handle.wait(60)
    assert job.run is not None
    assert job.status is JobStatus.COMPLETED, job.run.error
    doubled, status, _ = job.run.result
    assert (doubled, status) == (8, "FAILED")
    assert lines(effects) == ["call"] * 3
    made = rows(app.store, "SELECT type FROM jobs WHERE parent_id IS NOT NULL ORDER BY id")
    assert made == [("double",), ("breaks",), ("double",)]
    app.close()


@pytest.mark.rule("WAIT-06")
async def test_children_that_run_in_parallel_give_each_its_own_result(store_url: str) -> None:
    app = make_app(store_url)
    async with app.running():
        job = await (await app.enqueue("many")).wait(60)
    assert job.run is not None
    assert job.run.result == [0, 2, 4, 6, 8]
    assert rows(app.store, "SELECT count(*) FROM jobs WHERE parent_id IS NOT NULL") == [(5,)]
    app.close()


@pytest.mark.rule("WAIT-07")
async def test_a_child_takes_the_options_of_its_call(store_url: str) -> None:
    app = make_app(store_url)
    async with app.running():
        job = await (await app.enqueue("hands_over")).wait(60)
    assert job.run is not None
    records = rows(app.store, "SELECT id, priority, is_detached FROM jobs WHERE parent_id IS NOT NULL ORDER BY id")
    assert [(row[0], row[1], bool(row[2])) for row in records] == [
        (job.run.result[0], 7, False),
        (job.run.result[1], 0, True),
    ]
    with pytest.raises(Invalid, match="child of a handler"):
        await app.with_options(detached=True).enqueue("double", n=1)
    app.close()
