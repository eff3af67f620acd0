"""The span of a run, below the span of its submission (OPS-05). That one is made in store/tracing.py."""

from __future__ import annotations

from typing import Any

from holdbeat.domain.lease import Claim
from holdbeat.domain.run import Outcome, RunStatus
from holdbeat.store.tracing import span_context, tracer


def running(claim: Claim) -> RunSpan | None:
    """A span around a run, in the trace of its submission and linked to it; None where nothing is traced."""
    active = tracer()
    return None if active is None else RunSpan(active, claim)


class RunSpan:
    def __init__(self, tracer: Any, claim: Claim) -> None:
        from opentelemetry import trace

        lease = claim.lease
        job = claim.job
        origin = span_context(claim.work.trace)
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
            # The error's text stays in the store: traces are sent to other systems.
            self._span.set_status(Status(StatusCode.ERROR, str(outcome.error_kind or "")))
