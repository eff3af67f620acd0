"""A trace leads from the submission to the run; where nobody traces, nothing happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from holdbeat import App
from holdbeat.domain.submission import Submission
from holdbeat.observe import tracing

pytestmark = [pytest.mark.asyncio, pytest.mark.rule("OPS-05")]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """A provider as a program would configure it, for this test alone."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # A program sets its provider once for good; a test must be able to take it away again.
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def make_app(url: str) -> App:
    app = App(url, slots=4, concurrency="unlimited")

    @app.job(name="story", retries=0)
    async def story(prompt: str) -> str:
        with trace.get_tracer_provider().get_tracer("program").start_as_current_span("inside"):
            return prompt

    @app.job(name="fails", retries=1)
    async def fails() -> None:
        raise ValueError("a secret sentence")

    return app


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def context_of(span: ReadableSpan) -> Any:
    context = span.get_span_context()
    assert context is not None
    return context


async def test_a_run_is_in_the_trace_of_its_submission_and_linked_to_it(
    store_url: str, spans: InMemorySpanExporter
) -> None:
    app = make_app(store_url)
    async with app.running():
        job = await (await app.enqueue("story", prompt="x")).wait(20)
    (submit,), (run,), (inside,) = named(spans, "submit story"), named(spans, "run story"), named(spans, "inside")
    assert (submit.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert context_of(run).trace_id == context_of(submit).trace_id == context_of(inside).trace_id
    assert run.parent is not None and run.parent.span_id == context_of(submit).span_id
    assert [link.context.span_id for link in run.links] == [context_of(submit).span_id]
    assert inside.parent is not None and inside.parent.span_id == context_of(run).span_id
    assert run.attributes is not None and job.run is not None
    assert (run.attributes["holdbeat.job"], run.attributes["holdbeat.run"]) == (job.id, job.run.id)
    assert (run.attributes["holdbeat.fence"], run.attributes["holdbeat.outcome"]) == (job.run.fence, "COMPLETED")
    assert job.trace is not None
    assert job.trace.startswith(f"00-{context_of(submit).trace_id:032x}-{context_of(submit).span_id:016x}-")
    app.close()


@pytest.mark.rule("SEC-07")
async def test_a_failure_marks_its_span_without_its_words(store_url: str, spans: InMemorySpanExporter) -> None:
    app = make_app(store_url)
    async with app.running():
        again = app.with_options(retries={"max_attempts": 1, "base_delay_s": 0})
        await (await again.enqueue("fails")).wait(20)
    first, retry = named(spans, "run fails")
    assert first.status.status_code is StatusCode.ERROR and first.status.description == "error"
    assert context_of(first).trace_id == context_of(retry).trace_id, "a retry stays in the trace"
    assert "secret" not in repr([first.to_json(), retry.to_json()])
    app.close()


async def test_without_a_provider_nothing_is_traced_or_stored(store_url: str) -> None:
    app = make_app(store_url)
    submission = Submission.read({"type": "story"})
    with tracing.submitting([submission]):
        assert submission.trace is None
    async with app.running():
        job = await (await app.enqueue("story", prompt="x")).wait(20)
    assert job.trace is None
    app.close()


async def test_a_traceparent_of_the_caller_is_kept_and_one_that_is_none_is_ignored(spans: InMemorySpanExporter) -> None:
    mine = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    submissions = [Submission(type="story", trace=mine), Submission(type="other")]
    with tracing.submitting(submissions):
        pass
    assert submissions[0].trace == mine
    assert submissions[1].trace is not None and submissions[1].trace != mine
    assert named(spans, "submit 2 jobs")
    assert tracing._remote("00-zz-1-01") is None
    assert tracing._remote("00-" + "0" * 32 + "-" + "b" * 16 + "-01") is None
    assert tracing._remote(None) is None
