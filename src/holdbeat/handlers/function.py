"""Handlers for functions in the worker's own process: coroutines in its event loop, others in threads.

Guards CAN-03 for both: neither can be killed, so `run` does not end before the function has, and the slot
stays taken as long as the work goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Mapping
from types import CoroutineType, coroutine
from typing import Any

from holdbeat.domain.run import ErrorKind, Outcome, RunStatus
from holdbeat.handlers.context import Context
from holdbeat.handlers.current_run import current_run
from holdbeat.handlers.handler import bound, stopped_before_start
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.middleware import call_async, call_plain, middleware_of
from holdbeat.handlers.outcome import describe, failed_with, outcome_of_error, outcome_of_value
from holdbeat.handlers.stop import StopSignal
from holdbeat.handlers.threads import in_own_thread


class _FunctionHandler:
    def __init__(self, job_type: JobType) -> None:
        self._job_type = job_type
        assert job_type.function is not None
        self._function = job_type.function
        self._middleware = middleware_of(job_type.function)


class AsyncHandler(_FunctionHandler):
    """Runs a coroutine function within the calling task, so a job costs no second task.

    A stop cancels that task once, while the function waits for something; the function sees CancelledError at
    that await. A function that goes on regardless is left to end by itself.
    """

    async def run(self, ctx: Context, params: Mapping[str, Any], stop: StopSignal) -> Outcome:
        kwargs = stopped_before_start(stop) or bound(self._job_type, params, ctx)
        if isinstance(kwargs, Outcome):
            return kwargs
        task = asyncio.current_task()
        assert task is not None
        cancels_before = task.cancelling()
        unsubscribe: Callable[[], None] | None = None
        token = current_run.set(ctx)
        try:
            # SystemExit and KeyboardInterrupt must be caught in here: a task hands them to the event loop,
            # and that would end the worker.
            called: Any
            if self._middleware:
                called = call_async(self._middleware, ctx, lambda: self._function(**kwargs))
            else:
                called = self._function(**kwargs)
            if type(called) is CoroutineType:
                # Most of what a stop needs is only needed by a function that waits for something.
                try:
                    awaited = called.send(None)
                except StopIteration as end:
                    value = end.value
                else:
                    unsubscribe = _cancel_on_stop(task, stop)
                    value = await _go_on(called, awaited)
            else:
                unsubscribe = _cancel_on_stop(task, stop)
                value = await called
            outcome = outcome_of_value(ctx, value)
        except BaseException as error:
            outcome = failed_with(ctx, error)
            del error
        finally:
            current_run.reset(token)
            if unsubscribe is not None:
                unsubscribe()
        if task.cancelling() > cancels_before:
            await _forget_cancels(task, cancels_before)
        failure = await ctx.artifacts_written()
        if failure is not None and outcome.status is not RunStatus.FAILED:
            outcome = outcome_of_error(failure)
        return stop.verdict(outcome)


@coroutine
def _go_on(suspended: CoroutineType[Any, Any, Any], awaited: Any) -> Generator[Any, Any, Any]:
    """The rest of a coroutine that waits for `awaited`, as something to await."""
    while True:
        try:
            yield awaited
        except BaseException as error:
            try:
                awaited = suspended.throw(error)
            except StopIteration as end:
                return end.value
        else:
            # From here on the interpreter passes everything on by itself; an event loop sends nothing but None.
            return (yield from suspended)  # type: ignore[misc]


def _cancel_on_stop(task: asyncio.Task[Any], stop: StopSignal) -> Callable[[], None]:
    """Cancels the task once when the stop is set; returns what ends that."""
    loop = asyncio.get_running_loop()
    is_over = False
    is_told = False

    def cancel() -> None:
        # Runs in the loop while the function is suspended, so it cannot hit the worker's own code.
        nonlocal is_told
        if not (is_over or is_told):
            is_told = True
            task.cancel()

    def cancel_from_any_thread() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no handler is left
            loop.call_soon_threadsafe(cancel)

    unsubscribe = stop.subscribe(cancel_from_any_thread)

    def end() -> None:
        nonlocal is_over
        is_over = True
        unsubscribe()

    return end


async def _forget_cancels(task: asyncio.Task[Any], down_to: int) -> None:
    """Takes back the cancels that were meant for the function, or that it sent itself.

    One that it sent without waiting afterwards is still on its way, and would hit the worker's next await.
    """
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    while task.cancelling() > down_to:
        task.uncancel()


class ThreadHandler(_FunctionHandler):
    """Runs a plain function in a daemon thread of its own. It sees a stop only by asking its Context."""

    async def run(self, ctx: Context, params: Mapping[str, Any], stop: StopSignal) -> Outcome:
        kwargs = stopped_before_start(stop) or bound(self._job_type, params, ctx)
        if isinstance(kwargs, Outcome):
            return kwargs
        try:
            outcome = await in_own_thread(lambda: self._call(kwargs, ctx), name=f"run-{ctx.run_id}")
        except Exception as error:
            return Outcome.failed(ErrorKind.ERROR, f"No thread could be started for it: {describe(error)}")
        return stop.verdict(outcome)

    def _call(self, kwargs: dict[str, Any], ctx: Context) -> Outcome:
        current_run.set(ctx)  # in the context of this thread alone
        try:
            if self._middleware:
                return outcome_of_value(ctx, call_plain(self._middleware, ctx, lambda: self._function(**kwargs)))
            return outcome_of_value(ctx, self._function(**kwargs))
        except BaseException as error:
            return failed_with(ctx, error)
