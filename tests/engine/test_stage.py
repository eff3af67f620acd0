"""The pytest plugin: a real engine, and time in the test's hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdbeat import App

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("RET-01", "DEC-007")
async def test_retries_wait_ten_twenty_and_forty_seconds_and_then_end(holdbeat_stage: Callable[..., Any]) -> None:
    app = App()
    runs = []

    @app.job
    async def broken() -> None:
        runs.append(1)
        raise ValueError("boom")

    async with holdbeat_stage(app) as stage:
        await stage.app.enqueue(broken)
        assert await stage.drain() == 1
        assert await stage.advance(9.9) == 0
        assert await stage.advance(0.2) == 1
        assert await stage.advance(20) == 1
        assert await stage.advance(39) == 0
        assert await stage.advance(1) == 1
        assert await stage.advance(100_000) == 0
        assert len(runs) == 4
        tip = stage.app.store.read_sync(lambda tx: tx.rows("SELECT permanently_failed FROM jobs ORDER BY id DESC"))
        assert [bool(row[0]) for row in tip] == [True, False, False, False]


@pytest.mark.rule("INV-003", "DEC-011")
async def test_out_of_the_box_one_job_per_resource_runs_at_a_time(holdbeat_stage: Callable[..., Any]) -> None:
    app = App()
    order: list[int] = []

    @app.job
    async def note(number: int) -> None:
        order.append(number)

    async with holdbeat_stage(app) as stage:
        for number in range(3):
            await stage.app.enqueue(note, number=number)
        assert [await stage.step() for _ in range(4)] == [1, 1, 1, 0]
        assert order == [0, 1, 2]
