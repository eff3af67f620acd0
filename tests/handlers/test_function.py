"""Functions in the worker's own process: what they raise stays theirs, and they are waited for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdbeat.domain.run import ErrorKind, RunStatus
from holdbeat.handlers.context import Cancelled, Context, PermanentFailure, Skip
from tests.engine import misbehaviours as bad
from tests.engine.handler_stage import on_stage

pytestmark = pytest.mark.asyncio


def as_coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same misbehaviour as a coroutine function."""

    async def coroutine() -> Any:
        await asyncio.sleep(0)
        return function()

    return coroutine


RAISED: list[tuple[Callable[..., Any], str]] = [
    (bad.raises_value_error, "ValueError: bad � value �"),
    (bad.calls_sys_exit, "SystemExit: 0"),
    (bad.raises_keyboard_interrupt, "KeyboardInterrupt"),
    (bad.raises_cancelled_error, "asyncio.exceptions.CancelledError: by itself"),
    (bad.raises_cancelled, "Cancelled: by itself"),
    (bad.raises_generator_exit, "GeneratorExit"),
    (bad.raises_group, "BaseExceptionGroup: two at once (2 sub-exceptions) [ValueError: one; KeyboardInterrupt"),
    (bad.returns_bytes, "Unserialisable result: result is bytes"),
    (bad.returns_object, "Unserialisable result: result is of the type _thread.lock"),
    (bad.returns_nan, "Unserialisable result: result is not a finite number"),
    (bad.returns_nul, "Unserialisable result: result.text contains the character NUL"),
    (bad.returns_equal_keys, "Unserialisable result: result has two keys that are '1' in JSON"),
    (bad.returns_cycle, "Unserialisable result"),
]


@pytest.mark.rule("EXE-02")
@pytest.mark.parametrize("wrap", [as_coroutine, lambda function: function], ids=["task", "thread"])
@pytest.mark.parametrize(("function", "text"), RAISED)
async def test_whatever_it_raises_or_returns_fails_the_run_and_the_worker_goes_on(
    function: Callable[..., Any], text: str, wrap: Callable[[Any], Any]
) -> None:
    outcome = await on_stage(wrap(function)).run()
    assert (outcome.status, outcome.error_kind) == (RunStatus.FAILED, ErrorKind.ERROR)
    assert text in (outcome.error or "")
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.rule("RET-05")
async def test_skip_and_permanent_failure_are_understood_alone_and_in_groups() -> None:
    async def skips() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(nothing_to_do())

    async def nothing_to_do() -> None:
        raise Skip("nothing new")

    async def gives_up() -> None:
        raise ExceptionGroup("", [PermanentFailure("no such page"), PermanentFailure("gone")])

    for function in (skips, bad.raises_skip):
        outcome = await on_stage(function).run()
        assert (outcome.status, outcome.error) == (RunStatus.SKIPPED, "nothing new")
    outcome = await on_stage(gives_up).run()
    assert (outcome.error_kind, outcome.error) == (ErrorKind.REJECTED, "no such page; gone")


@pytest.mark.rule("EXE-01", "EXE-03")
async def test_a_task_and_a_thread_have_the_context_and_return_their_result() -> None:
    where: list[str] = []

    async def in_task(ctx: Context, words: int = 3) -> dict[str, int]:
        where.append(threading.current_thread().name)
        ctx.progress(2.0, "more than all")
        return {"words": words, "fence": ctx.fence}

    def in_thread(words: int, ctx: Context) -> dict[str, int]:
        where.append(threading.current_thread().name)
        ctx.artifact("page.html", b"<p>")
        return {"words": words, "attempt": ctx.attempt}

    task, thread = on_stage(in_task), on_stage(in_thread)
    assert (await task.run()).result == {"words": 3, "fence": 41}
    assert (await thread.run(words=5)).result == {"words": 5, "attempt": 2}
    assert task.script.progressed == [(1.0, "more than all")]
    assert thread.script.artifacts == {"page.html": b"<p>"}
    assert where == [threading.current_thread().name, f"run-{thread.run_id}"]


async def test_a_thread_sees_the_context_variables_of_its_worker() -> None:
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace")
    trace.set("span 7")
    assert (await on_stage(lambda: trace.get(), name="reader").run()).result == "span 7"


@pytest.mark.rule("EXE-02")
async def test_params_that_do_not_fit_are_rejected_without_a_call() -> None:
    called = False

    async def typed(words: int) -> None:
        nonlocal called
        called = True

    for params in ({"words": "three"}, {}, {"words": 3, "wrods": 4}):
        outcome = await on_stage(typed).run(**params)
        assert (outcome.status, outcome.error_kind) == (RunStatus.FAILED, ErrorKind.REJECTED)
    assert not called


# -- being stopped -----------------------------------------------------------------------------------------


@pytest.mark.rule("CAN-02")
@pytest.mark.parametrize("reason", ["cancelled", "interrupted", "timeout", "lost"])
async def test_a_coroutine_is_told_at_its_await(reason: str) -> None:
    stage = on_stage(bad.awaits)
    stage.stop_when_it_says("waiting", reason)
    outcome = await asyncio.wait_for(stage.run(), 20)
    assert (outcome.status, outcome.error_kind) == (RunStatus.FAILED, ErrorKind(reason))
    assert "cleaned up" in stage.script.text("log")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.rule("CAN-02")
async def test_a_stop_from_another_thread_wakes_a_waiting_coroutine() -> None:
    stage = on_stage(bad.awaits)
    threading.Timer(0.05, stage.stop.set, ("cancelled",)).start()
    assert (await stage.run(within_s=5)).error_kind is ErrorKind.CANCELLED


@pytest.mark.rule("CAN-02")
@pytest.mark.parametrize("function", [bad.waits_for_stop, bad.eats_exceptions])
async def test_a_thread_is_told_when_it_asks(function: Callable[..., Any]) -> None:
    stage = on_stage(function)
    stage.stop_when_it_says("waiting", "cancelled")
    outcome = await stage.run(within_s=5)
    if function is bad.waits_for_stop:
        assert (outcome.status, outcome.result) == (RunStatus.COMPLETED, "finished in time")
    else:
        assert outcome.error_kind is ErrorKind.CANCELLED, "a loop over `except Exception` does not eat it"


@pytest.mark.rule("CAN-03")
async def test_a_coroutine_that_goes_on_after_the_cancel_is_waited_for() -> None:
    release = asyncio.Event()

    async def stubborn(ctx: Context) -> str:
        try:
            ctx.log("waiting")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await release.wait()
        return "my own pace"

    stage = on_stage(stubborn)
    stage.stop_when_it_says("waiting", "interrupted", grace_s=0)
    running = asyncio.create_task(stage.run())
    done, _ = await asyncio.wait({running}, timeout=0.1)
    assert not done, "neither the grace nor a second reason ends what cannot be killed"
    stage.stop.set("lost")
    release.set()
    outcome = await running
    assert outcome.error_kind is ErrorKind.LOST, "once the lease is lost no result counts"


@pytest.mark.rule("CAN-03")
async def test_a_thread_that_ignores_the_stop_is_waited_for() -> None:
    release = threading.Event()

    def stubborn(ctx: Context) -> str:
        ctx.log("waiting")
        release.wait(30)
        return "my own pace"

    stage = on_stage(stubborn)
    stage.stop_when_it_says("waiting", "timeout", grace_s=0)
    running = asyncio.create_task(stage.run())
    done, _ = await asyncio.wait({running}, timeout=0.1)
    assert not done
    release.set()
    outcome = await running
    assert (outcome.status, outcome.error_kind) == (RunStatus.FAILED, ErrorKind.TIMEOUT)
    assert outcome.error == "Ran beyond its timeout; what it returned afterwards does not count."


@pytest.mark.rule("TIM-01", "CAN-02")
async def test_a_success_after_the_stop_counts_unless_time_ran_out() -> None:
    async def finishes(ctx: Context) -> str:
        try:
            ctx.log("waiting")
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        return "saved"

    for reason, status in (("cancelled", "COMPLETED"), ("interrupted", "COMPLETED"), ("timeout", "FAILED")):
        stage = on_stage(finishes)
        stage.stop_when_it_says("waiting", reason)
        outcome = await stage.run()
        assert outcome.status == status, reason
        assert outcome.result == ("saved" if status == "COMPLETED" else None)


async def test_a_run_that_is_stopped_before_it_begins_does_not_begin() -> None:
    for function, isolation in ((bad.awaits, None), (bad.sleeps, None), (bad.sleeps, "process")):
        stage = on_stage(function, isolation)
        stage.stop.set("cancelled")
        outcome = await stage.run(within_s=1)
        assert outcome.error_kind is ErrorKind.CANCELLED
        assert stage.script.logged == []


@pytest.mark.rule("EXE-02")
async def test_a_coroutine_that_cancels_its_own_task_fails_alone() -> None:
    async def cancels_itself(wait: bool) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if wait:
            await asyncio.sleep(1)
        return "done"

    for wait in (True, False):
        outcome = await on_stage(cancels_itself).run(wait=wait)
        assert outcome.status is (RunStatus.FAILED if wait else RunStatus.COMPLETED)
        await asyncio.sleep(0)


@pytest.mark.rule("EXE-02")
async def test_a_stop_in_the_moment_of_the_end_does_not_hit_the_worker() -> None:
    async def ends_at_once(ctx: Context) -> str:
        await asyncio.sleep(0)
        ctx.log("waiting")
        return "done"

    for _ in range(200):
        stage = on_stage(ends_at_once)
        stage.stop_when_it_says("waiting", "cancelled")
        outcome = await stage.run()
        assert outcome.result == "done"
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)


@pytest.mark.rule("EXE-02")
async def test_many_threads_at_once_are_not_limited_by_an_executor() -> None:
    together = threading.Barrier(40)
    stages = [on_stage(lambda: together.wait(10), name="meets") for _ in range(40)]
    outcomes = await asyncio.gather(*(stage.run() for stage in stages))
    assert sorted(outcome.result for outcome in outcomes) == list(range(40))


async def test_cancelled_is_no_exception_that_a_careless_loop_would_eat() -> None:
    assert not issubclass(Cancelled, Exception)
    assert issubclass(Skip, Exception) and issubclass(PermanentFailure, Exception)
