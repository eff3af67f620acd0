"""Limits in a running App: what it declares is stored, its handlers know their slots, rates hold."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from holdbeat import App, Context
from holdbeat.engine import dispatcher
from holdbeat.store.limits.changes import set_limit
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.reads.stats import resource_stats
from tests.conformance.acts import open_at
from tests.engine.engine_jobs import slot_number

pytestmark = pytest.mark.asyncio


def make_app(url: str, **changes: Any) -> App:
    app = App(url, **{"slots": 4, "heartbeat_s": 1, "lease_s": 10, "allow_shell": True, **changes})

    @app.job(resource="gpu", retries=0)
    async def render(ctx: Context) -> int | None:
        await asyncio.sleep(0.3)
        return ctx.slot

    app.job_with(slot_number, resource="gpu", retries=0, isolation="process")

    @app.job(resource="api", partition="account", retries=0)
    async def call(account: str) -> None:
        return None

    return app


@pytest.mark.rule("LIM-10")
async def test_handlers_processes_and_shell_commands_know_the_number_of_their_slot(store_url: str) -> None:
    app = make_app(store_url, concurrency="resources:gpu=2")
    async with app.running():
        jobs = [await app.enqueue("render") for _ in range(4)]
        slots = [(await job.wait()).run.result for job in jobs]  # type: ignore[union-attr]
        assert set(slots) == {0, 1}
        assert (await (await app.enqueue("slot_number")).wait()).run.result == 0  # type: ignore[union-attr]
        argv = ["sh", "-c", "echo slot $HOLDBEAT_SLOT"]
        shell = await app.with_options(resource="gpu").enqueue("shell", argv=argv)
        assert (await shell.wait()).run.result["stdout_tail"] == "slot 0\n"  # type: ignore[union-attr]
    app.close()


@pytest.mark.rule("LIM-01", "LIM-02")
async def test_an_app_declares_its_limits_when_it_starts_and_settings_go_before_code(store_url: str) -> None:
    app = make_app(store_url, concurrency="resources:gpu=2", limits={"api": {"resource": "api", "slots": 3}})
    app.limit("api", resource="api", slots=9)
    app.limit("all", slots=7)
    async with app.running():
        limits = await app.store.read(limits_in_force)
        assert {limit.name: limit.slots for limit in limits} == {"gpu": 2, "api": 3, "all": 7, "each:resource": 1}
    app.close()


@pytest.mark.rule("LIM-02")
async def test_a_limit_that_is_raised_elsewhere_wakes_a_running_worker(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "POLL_S", 3600.0)
    app = make_app(store_url, concurrency="resources:gpu=0,api=1")
    async with app.running():
        limited = await app.enqueue("render")
        await (await app.enqueue("call", account="x")).wait("20s")  # whoever claimed this saw no slot for the other
        operator = open_at(store_url)
        operator.write_sync(set_limit, "gpu", {"slots": 1})
        assert (await limited.wait("20s")).status == "COMPLETED"
        operator.close()
    app.close()


@pytest.mark.rule("LIM-04", "LIM-05")
async def test_the_partition_comes_from_the_param_and_the_worker_looks_again_when_the_rate_permits(
    store_url: str,
) -> None:
    app = make_app(store_url, concurrency="unlimited")
    app.limit("calls", resource="api", rate={"count": 5, "per_s": 1}, per_partition=True)
    async with app.running():
        jobs = [await app.enqueue("call", account=account) for account in ("x", "x", "x", "y")]
        done = [await job.wait() for job in jobs]
        assert [job.partition for job in done] == ["x", "x", "x", "y"]
        starts = [job.started_at for job in done[:3] if job.started_at]
        gaps = [(after - before).total_seconds() for before, after in pairwise(starts)]
        assert all(gap >= 0.199 for gap in gaps)
    app.close()


@pytest.mark.rule("LIM-01", "LIM-02", "CAP-02")
async def test_two_workers_with_different_settings_show_and_obey_the_same_limit(store_url: str) -> None:
    first = make_app(store_url, concurrency="resources:gpu=3")
    second = make_app(store_url, concurrency="resources:gpu=1")
    async with first.running(), second.running():
        jobs = [await first.enqueue("render") for _ in range(4)]
        seen = [await app.store.read(resource_stats) for app in (first, second)]
        assert [figures["gpu"]["slots"] for figures in seen] == [1, 1], "the newest start wins"
        done = sorted([await job.wait("20s") for job in jobs], key=lambda job: job.started_at or job.created_at)
    first.close()
    second.close()
    for before, after in pairwise(done):
        assert before.finished_at is not None and after.started_at is not None
        assert before.finished_at <= after.started_at, "one at a time, whichever worker ran it"
