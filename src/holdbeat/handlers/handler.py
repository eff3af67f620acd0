"""The Handler: the one way in which the engine runs anything.

Guards EXE-02 for the worker: `run` ends with exactly one Outcome whatever the function does. Nothing but the
cancellation of the worker's own task, which is no way to stop a handler, can come out of it as an exception.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.params import storable_text
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.handlers.context import Context
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.outcome import MAX_ERROR_LENGTH, describe
from holdbeat.handlers.stop import StopSignal


class Handler(Protocol):
    async def run(self, ctx: Context, params: Mapping[str, Any], stop: StopSignal) -> Outcome:
        """Runs the function and ends when it has really ended. Tell it to end with `stop.set(...)`."""


def bound(job_type: JobType, params: Mapping[str, Any], ctx: Context) -> dict[str, Any] | Outcome:
    """The arguments of the call, or the Outcome of a Job whose params the function does not take (any more).

    That is `rejected`: the same params will not fit the next time either.
    """
    try:
        kwargs = job_type.bind(params)
    except HoldbeatError as error:
        return Outcome.failed(ErrorKind.REJECTED, storable_text(str(error), MAX_ERROR_LENGTH))
    except BaseException as error:
        return Outcome.failed(ErrorKind.REJECTED, f"The params could not be read: {describe(error)}")
    if job_type.context_name is not None:
        kwargs[job_type.context_name] = ctx if job_type.is_async else ctx.for_plain_calls
    return kwargs


def stopped_before_start(stop: StopSignal) -> Outcome | None:
    """The Outcome of a run that was told to end before it began."""
    if not stop.is_set:
        return None
    return stop.verdict(Outcome.failed(ErrorKind.ERROR, "it had not begun."))


async def run_process(stop: StopSignal, run: Coroutine[Any, Any, Outcome]) -> Outcome:
    """The outcome of a run in a process of its own, which may have been told to end."""
    try:
        return stop.verdict(await run)
    except Exception as error:
        return stop.verdict(Outcome.failed(ErrorKind.ERROR, f"No process could be run for it: {describe(error)}"))


def make_handler(job_type: JobType) -> Handler:
    """The handler that fits a job type: its own, a process, a task or a thread."""
    # Imported here, because each of them builds on this module.
    from holdbeat.handlers.function import AsyncHandler, ThreadHandler
    from holdbeat.handlers.process import ProcessHandler

    if job_type.handler is not None:
        return job_type.handler
    if job_type.isolation == "process":
        return ProcessHandler(job_type)
    return AsyncHandler(job_type) if job_type.is_async else ThreadHandler(job_type)
