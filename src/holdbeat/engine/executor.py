"""The Executor: one claim in, one Outcome out.

A visible pipeline: find the handler, give it its Context, watch the deadline, run, keep what it said. Whatever
happens on the way, it ends in exactly one Outcome (EXE-02).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdbeat.domain.clock import Clock
from holdbeat.domain.lease import Claim
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.engine.run_keeper import RunKeeper
from holdbeat.engine.run_reports import RunReports
from holdbeat.handlers.context import DEFAULT_SUSPEND_S, Context
from holdbeat.handlers.current_run import log_failure
from holdbeat.handlers.handler import Handler
from holdbeat.handlers.stop import StopReason, StopSignal
from holdbeat.handlers.upstreams import Upstreams
from holdbeat.observe.tracing import RunSpan, running
from holdbeat.store.reads.upstreams import upstream_results

log = logging.getLogger("holdbeat.engine")


class Executor:
    def __init__(
        self,
        handlers: Mapping[str, Handler],
        reports: RunReports,
        clock: Clock,
        *,
        on_overdue: Callable[[Claim], None] = lambda claim: None,
        suspend_s: float = DEFAULT_SUSPEND_S,
    ) -> None:
        self._handlers = handlers
        self._reports = reports
        self._clock = clock
        self._on_overdue = on_overdue
        self._suspend_s = suspend_s

    def execute(self, claim: Claim, stop: StopSignal) -> Coroutine[Any, Any, Outcome]:
        """Runs what was claimed to its end."""
        span = running(claim)
        return self._execute(claim, stop) if span is None else self._traced(span, claim, stop)

    async def _traced(self, span: RunSpan, claim: Claim, stop: StopSignal) -> Outcome:
        with span:
            outcome = await self._execute(claim, stop)
            span.ended(outcome)
            return outcome

    async def _execute(self, claim: Claim, stop: StopSignal) -> Outcome:
        work, job = claim.work, claim.job
        handler = self._handlers.get(work.type)
        if handler is None:
            return Outcome.failed(
                ErrorKind.REJECTED, f"This worker has no handler for the job type {work.type!r} any more."
            )
        lease = claim.lease
        reports = self._reports.of(lease, stop)
        deadline = None
        alarm: asyncio.TimerHandle | None = None
        if work.timeout_s is not None:
            deadline = lease.acquired_at + timedelta(seconds=work.timeout_s)
            left_s = max(0.0, (deadline - self._clock.now()).total_seconds())
            loop = asyncio.get_running_loop()
            alarm = loop.call_at(loop.time() + left_s, self._time_is_up, claim, stop)
        context = Context(
            run_id=lease.id,
            type=work.type,
            title=work.title,
            fence=lease.fence,
            slots=lease.slot_numbers,
            reports=reports,
            stop=stop,
            job=job,
            deadline=deadline,
            clock=self._clock,
            keeper=RunKeeper(self._reports.store, lease, job, stop) if job is not None else None,
            suspend_s=self._suspend_s,
        )
        try:
            if job is not None and job.on_upstream is not None:
                entries = await self._reports.store.read(upstream_results, job.chain_id)
                context.upstream = Upstreams(entries, job.on_upstream)
            outcome = await handler.run(context, work.params, stop)
        except Exception as error:  # a handler never raises; if one does all the same, only its own run fails
            log.exception("the handler of %s broke", work.type)
            outcome = Outcome.failed(ErrorKind.ERROR, f"The handler broke: {type(error).__name__}: {error}")
        finally:
            if alarm is not None:
                alarm.cancel()
        if alarm is not None and alarm.when() <= asyncio.get_running_loop().time() and not stop.is_set:
            # It held the event loop beyond its deadline, so that the alarm could not go off before it returned.
            self._time_is_up(claim, stop)
            outcome = stop.verdict(outcome)
        context.finish_output()
        log_failure(context, outcome)
        artifacts = await reports.finish() if reports.any_made else None
        reports.close()
        return replace(outcome, artifacts=artifacts) if artifacts else outcome

    def _time_is_up(self, claim: Claim, stop: StopSignal) -> None:
        if stop.set(StopReason.TIMEOUT, grace_s=claim.work.cancel_grace_s):
            self._on_overdue(claim)
