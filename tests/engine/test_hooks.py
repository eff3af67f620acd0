"""Startup and shutdown functions of a worker, and middleware around each run (FRM-04)."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from holdbeat import App, Context
from holdbeat.domain.job import JobStatus
from holdbeat.engine.worker_hooks import StartupFailed
from tests.engine import hooked_jobs
from tests.engine.acting import value

pytestmark = [pytest.mark.asyncio, pytest.mark.rule("FRM-04")]


async def test_startup_comes_before_the_first_job_and_shutdown_after_the_last_in_reverse(store_url: str) -> None:
    app = App(store_url)
    steps: list[str] = []

    @app.on_startup
    def load() -> None:
        steps.append("load in a thread" if threading.current_thread() is not threading.main_thread() else "load")

    @app.on_startup
    async def connect() -> None:
        steps.append("connect")

    @app.on_shutdown
    async def disconnect() -> None:
        steps.append("disconnect")

    @app.on_shutdown
    def unload() -> None:
        steps.append("unload")
        raise RuntimeError("this does not keep the others from being called")

    @app.job(retries=0)
    async def work() -> None:
        steps.append("work")

    handle = await app.enqueue(work)
    async with app.running():
        await handle.wait(30)
    assert steps == ["load in a thread", "connect", "work", "unload", "disconnect"]
    app.close()


async def test_a_startup_function_that_fails_keeps_the_worker_from_starting(store_url: str) -> None:
    app = App(store_url)
    ran = []

    @app.on_startup
    async def load() -> None:
        raise OSError("no such model")

    app.on_shutdown(lambda: ran.append("shutdown"))

    @app.job
    def work() -> None:
        ran.append("work")

    await app.enqueue(work)
    with pytest.raises(StartupFailed, match=r"The startup function .*load failed, .*OSError: no such model"):
        async with app.running():
            raise AssertionError("it must not run")
    assert ran == []
    assert value(app.store, "SELECT count(*) FROM workers WHERE stopped_at IS NULL") == 0
    app.close()


async def test_middleware_surrounds_async_and_thread_handlers_and_direct_requests(store_url: str) -> None:
    app = App(store_url)
    steps: list[str] = []

    @app.middleware
    def outer(ctx: Context) -> Iterator[None]:
        steps.append(f"outer begins {ctx.type}")
        try:
            yield
        finally:
            steps.append("outer ends")

    @app.job(retries=0)
    async def in_the_loop() -> str:
        steps.append("handler")
        return "done"

    @app.job(retries=0)
    def in_a_thread() -> str:
        steps.append("handler")
        return "done"

    @app.middleware
    async def inner(ctx: Context) -> AsyncIterator[None]:
        steps.append("inner begins")
        yield
        steps.append("inner ends")

    async with app.running():
        for type_ in ("in_the_loop", "in_a_thread"):
            steps.clear()
            done = await (await app.enqueue(type_)).wait(30)
            assert done.run is not None and done.run.result == "done"
            assert steps == [f"outer begins {type_}", "inner begins", "handler", "inner ends", "outer ends"]
        steps.clear()
        assert await app.direct("in_the_loop") == "done"
        assert steps[0] == "outer begins in_the_loop"
    app.close()


async def test_middleware_sees_the_error_of_a_handler_and_can_fail_a_run_itself(store_url: str) -> None:
    app = App(store_url)
    errors: list[str] = []

    @app.middleware
    def watch(ctx: Context) -> Iterator[None]:
        if ctx.type == "refused":
            raise PermissionError("not today")
        try:
            yield
        except ValueError as error:
            errors.append(str(error))
            raise

    @app.job(retries=0)
    def broken() -> None:
        raise ValueError("it broke")

    @app.job(retries=0)
    async def refused() -> None:
        errors.append("it ran")

    async with app.running():
        jobs = [await (await app.enqueue(type_)).wait(30) for type_ in ("broken", "refused")]
    assert [job.status for job in jobs] == [JobStatus.FAILED] * 2
    assert [job.run.error for job in jobs if job.run] == ["ValueError: it broke", "PermissionError: not today"]
    assert errors == ["it broke"]
    app.close()


async def test_middleware_of_isolated_runs_is_entered_in_their_process(store_url: str) -> None:
    app = hooked_jobs.app
    app.settings = app.settings.with_changes(store=store_url)
    try:
        async with app.running():
            for type_ in ("plain", "coroutine"):
                done = await (await app.enqueue(type_)).wait(60)
                assert done.run is not None and done.run.result == ["outer begins in the child"], done.run
    finally:
        app.close()
