"""The pytest plugin: a real engine, and time in the test's hand."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
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


ELSEWHERE = """
import asyncio, sys

def test_nothing_of_holdbeat_is_loaded_before_it_is_used():
    assert [name for name in sys.modules if name.startswith("holdbeat.")] == ["holdbeat.testing"]

def test_the_stage_is_there(holdbeat_stage):
    from holdbeat import App

    app = App()

    @app.job
    def add(a: int) -> int:
        return a + 1

    async def play() -> None:
        async with holdbeat_stage(app) as stage:
            job = await app.enqueue(add, a=1)
            await stage.drain()
            assert (await stage.job(job.id)).run.result == 2

    asyncio.run(play())
"""


@pytest.mark.parametrize("conftest", ["", 'pytest_plugins = ["holdbeat.testing"]'])
async def test_pytest_finds_the_plugin_by_itself_and_it_weighs_nothing(tmp_path: Path, conftest: str) -> None:
    (tmp_path / "test_elsewhere.py").write_text(ELSEWHERE)
    (tmp_path / "conftest.py").write_text(conftest)
    pytest_elsewhere = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = await asyncio.to_thread(
        subprocess.run, pytest_elsewhere, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
