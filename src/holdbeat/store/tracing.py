"""Traces by OpenTelemetry at the way into the queue: the span of a submission, which its runs have as parent (OPS-05).

Guards the hot path: nothing is imported here. A program that traces has imported OpenTelemetry and configured a
provider itself; where it has not, each call below is one look into a dictionary.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from holdbeat.domain.submission import Submission
from holdbeat.domain.traceparent import TRACEPARENT, is_traceparent, written
from holdbeat.domain.uniform_batch import distinct_items


def tracer() -> Any | None:
    """The tracer of the program's provider; None if it has none."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return trace.get_tracer("holdbeat", tracer_provider=provider)


def current_traceparent() -> str | None:
    """The span in which the caller is now."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    return None if trace is None else written(trace.get_current_span().get_span_context())


def span_context(traceparent: str | None) -> Any | None:
    """The span that a traceparent names; None if there is none or it cannot be read."""
    if traceparent is None or not is_traceparent(traceparent):
        return None
    from opentelemetry.trace import SpanContext, TraceFlags

    match = TRACEPARENT.fullmatch(traceparent)
    assert match is not None
    flags = TraceFlags(int(match["flags"], 16))
    return SpanContext(int(match["trace"], 16), int(match["span"], 16), is_remote=True, trace_flags=flags)


_NO_SPAN: contextlib.AbstractContextManager[str | None] = contextlib.nullcontext(None)


def submit_span(submissions: Sequence[Submission]) -> contextlib.AbstractContextManager[str | None]:
    """A span around the submission of jobs, below the span of the caller; gives its traceparent, if there is one.

    Made within the transaction that stores the job, whichever way it was submitted. A transaction that has to be run
    again makes another span.
    """
    active = tracer()
    return _NO_SPAN if active is None else _submit_span(active, submissions)


@contextlib.contextmanager
def _submit_span(active: Any, submissions: Sequence[Submission]) -> Iterator[str | None]:
    from opentelemetry import trace

    types = {submission.type or submission.template or "" for submission in distinct_items(submissions)}
    name = types.pop() if len(types) == 1 else f"{len(submissions)} jobs"
    caller = span_context(submissions[0].trace)
    with active.start_as_current_span(
        f"submit {name}",
        context=None if caller is None else trace.set_span_in_context(trace.NonRecordingSpan(caller)),
        kind=trace.SpanKind.PRODUCER,
        attributes={"holdbeat.jobs": len(submissions)},
    ) as span:
        yield written(span.get_span_context())
