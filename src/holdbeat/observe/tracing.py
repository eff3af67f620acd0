"""Traces by OpenTelemetry, from the submission to the run (OPS-05).

Guards the hot path: nothing is imported here. A program that traces has imported OpenTelemetry and configured a
provider itself; where it has not, each call below is one look into a dictionary.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from holdbeat.domain.lease import Claim
from holdbeat.domain.run import Outcome, RunStatus
from holdbeat.domain.submission import Submission

_TRACEPARENT = re.compile(r"^00-(?P<trace>[0-9a-f]{32})-(?P<span>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})$")
_NOTHING: AbstractContextManager[None] = nullcontext()


def submitting(submissions: Sequence[Submission]) -> AbstractContextManager[Any]:
    """A span around a submission; each job remembers it, so that its run can be found from there."""
    tracer = _tracer()
    return _NOTHING if tracer is None else _Submitting(tracer, submissions)


def running(claim: Claim) -> RunSpan | None:
    """A span around a run, in the trace of its submission and linked to it; None where nothing is traced."""
    tracer = _tracer()
    return None if tracer is None else RunSpan(tracer, claim)


def _tracer() -> Any | None:
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return trace.get_tracer("holdbeat", tracer_provider=provider)


class _Submitting:
    def __init__(self, tracer: Any, submissions: Sequence[Submission]) -> None:
        from opentelemetry.trace import SpanKind

        types = {submission.type or submission.template or "" for submission in submissions}
        name = types.pop() if len(types) == 1 else f"{len(submissions)} jobs"
        self._submissions = submissions
        self._span = tracer.start_as_current_span(
            f"submit {name}", kind=SpanKind.PRODUCER, attributes={"holdbeat.jobs": len(submissions)}
        )

    def __enter__(self) -> None:
        context = self._span.__enter__().get_span_context()
        if context.is_valid:
            trace = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
            for submission in self._submissions:
                submission.trace = submission.trace or trace

    def __exit__(self, *error: Any) -> None:
        self._span.__exit__(*error)


class RunSpan:
    """The span of one run."""

    def __init__(self, tracer: Any, claim: Claim) -> None:
        from opentelemetry import trace

        lease = claim.lease
        job = claim.job
        origin = _remote(job.trace) if job is not None else None
        attributes: dict[str, Any] = {
            "holdbeat.type": lease.type,
            "holdbeat.resource": lease.resource,
            "holdbeat.run": lease.id,
            "holdbeat.worker": lease.worker_id,
            "holdbeat.fence": lease.fence,
        }
        if job is not None:
            attributes |= {"holdbeat.job": job.id, "holdbeat.attempt": job.attempt}
        self._current = tracer.start_as_current_span(
            f"run {lease.type}",
            context=trace.set_span_in_context(trace.NonRecordingSpan(origin)) if origin is not None else None,
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=[trace.Link(origin)] if origin is not None else (),
        )
        self._span: Any = None

    def __enter__(self) -> RunSpan:
        self._span = self._current.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._current.__exit__(*error)

    def ended(self, outcome: Outcome) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("holdbeat.outcome", str(outcome.status))
        if outcome.error_kind is not None:
            self._span.set_attribute("holdbeat.error_kind", str(outcome.error_kind))
        if outcome.status is RunStatus.FAILED:
            # The error's own words stay in the store: a trace leaves the house.
            self._span.set_status(Status(StatusCode.ERROR, str(outcome.error_kind or "")))


def _remote(traceparent: str | None) -> Any | None:
    """The span that a stored traceparent names; None if there is none or it cannot be read."""
    found = _TRACEPARENT.match(traceparent or "")
    if found is None:
        return None
    from opentelemetry.trace import SpanContext, TraceFlags

    context = SpanContext(
        int(found["trace"], 16), int(found["span"], 16), is_remote=True, trace_flags=TraceFlags(int(found["flags"], 16))
    )
    return context if context.is_valid else None
