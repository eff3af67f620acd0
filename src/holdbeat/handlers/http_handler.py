"""The built-in job type `http`: one call, whose answer is the result (GOV-10)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from holdbeat.domain.clock import Clock, SystemClock
from holdbeat.domain.endpoint import retry_after
from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.lease import HTTP_RESOURCE
from holdbeat.domain.params import storable_text
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.handlers.context import Context
from holdbeat.handlers.http import HTTP_PARAMS_SCHEMA, HttpFailure, call_http
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.outbound import Outbound
from holdbeat.handlers.outcome import MAX_ERROR_LENGTH
from holdbeat.handlers.stop import StopSignal

_KINDS = {"timeout": ErrorKind.TIMEOUT, "rejected": ErrorKind.REJECTED}


class HttpHandler:
    def __init__(self, outbound: Outbound, clock: Clock | None = None) -> None:
        self._outbound = outbound
        self._clock = clock or SystemClock()

    async def run(self, ctx: Context, params: Mapping[str, Any], stop: StopSignal) -> Outcome:
        loop = asyncio.get_running_loop()
        call = asyncio.ensure_future(self._call(params))

        def told() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(call.cancel)

        unsubscribe = stop.subscribe(told)
        try:
            return stop.verdict(await call)
        except asyncio.CancelledError:
            if not stop.is_set:
                call.cancel()
                raise
            return stop.verdict(Outcome.failed(ErrorKind.ERROR, "the call was broken off."))
        finally:
            unsubscribe()

    async def _call(self, params: Mapping[str, Any]) -> Outcome:
        try:
            return Outcome.completed(await call_http(self._outbound, params))
        except HttpFailure as failure:
            text, now = storable_text(str(failure), MAX_ERROR_LENGTH), self._clock.now()
            until = retry_after(failure.result, now)
            if until is not None:
                return Outcome.throttled(text, (until - now).total_seconds(), result=failure.result)
            return Outcome.failed(_KINDS.get(failure.kind, ErrorKind.ERROR), text, result=failure.result)
        except HoldbeatError as error:
            return Outcome.failed(ErrorKind.REJECTED, storable_text(str(error), MAX_ERROR_LENGTH))
        except Exception as error:
            return Outcome.failed(ErrorKind.ERROR, storable_text(f"{type(error).__name__}: {error}", MAX_ERROR_LENGTH))


def http_job_type(outbound: Outbound) -> JobType:
    return JobType(
        name="http",
        function=None,
        schema=HTTP_PARAMS_SCHEMA,
        is_async=True,
        resource=HTTP_RESOURCE,
        partition="url",
        description="Calls a URL; success is a 2xx answer.",
        handler=HttpHandler(outbound),
    )
