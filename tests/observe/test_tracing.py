"""A trace leads from the submission to the run; where nobody traces, nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import click
import httpx2
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from holdbeat import App
from holdbeat.api.server import ApiServer
from holdbeat.cli.backend import reached
from holdbeat.cli.local import LocalBackend
from holdbeat.domain.submission import Submission
from holdbeat.store import tracing
from holdbeat.wiring import Composition
from tests.engine.acting import job, until, value

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


TRACEPARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


def client_of(app: App) -> httpx2.AsyncClient:
    """A client of the API of a running App."""
    assert app._supervisor is not None
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(ApiServer(app._supervisor).app), base_url="http://127.0.0.1"
    )


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


async def test_each_of_many_callers_that_are_stored_together_has_a_span(
    store_url: str, spans: InMemorySpanExporter
) -> None:
    app = make_app(store_url)
    handles = await asyncio.gather(*[app.enqueue("story", prompt="x") for _ in range(8)])
    submits = named(spans, "submit story")
    assert {(handle.job.trace or "")[3:-3] for handle in handles} == {
        f"{context_of(span).trace_id:032x}-{context_of(span).span_id:016x}" for span in submits
    }
    assert [span.attributes and span.attributes["holdbeat.jobs"] for span in submits] == [1] * 8
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
    with tracing.submit_span([Submission.read({"type": "story"})]) as made:
        assert made is None
    async with app.running():
        job = await (await app.enqueue("story", prompt="x")).wait(20)
    assert job.trace is None
    app.close()


def check_run_below_submission(exporter: InMemorySpanExporter) -> ReadableSpan:
    """The one submission has a span, and the one run a span with it as parent; gives the submission's."""
    (submit,), (run,) = named(exporter, "submit story"), named(exporter, "run story")
    assert run.parent is not None and run.parent.span_id == context_of(submit).span_id
    assert context_of(run).trace_id == context_of(submit).trace_id
    return submit


async def test_the_callers_span_is_the_parent_of_an_apps_submission(
    store_url: str, spans: InMemorySpanExporter
) -> None:
    app = make_app(store_url)
    async with app.running():
        with trace.get_tracer_provider().get_tracer("program").start_as_current_span("caller") as caller:
            handle = await app.enqueue("story", prompt="x")
        await handle.wait(20)
    submit = check_run_below_submission(spans)
    assert submit.parent is not None and submit.parent.span_id == caller.get_span_context().span_id
    app.close()


async def test_a_job_from_the_local_command_line_has_a_submit_span_above_its_run(
    store_url: str, spans: InMemorySpanExporter
) -> None:
    app = make_app(store_url)
    backend = LocalBackend(app.store, app.settings)
    made = await asyncio.to_thread(backend.submit_job, {"type": "story", "params": {"prompt": "x"}})
    async with app.running():
        await until(lambda: job(app.store, made["id"]).finished_at)
    check_run_below_submission(spans)
    app.close()


async def test_a_command_is_below_the_span_that_its_environment_names(
    store_url: str, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(store_url)
    assert app.store  # the types are announced

    def submit(traceparent: str) -> None:
        monkeypatch.setenv("TRACEPARENT", traceparent)
        with click.Context(click.Command("submit")), reached(Composition(), store_url, None, None) as backend:
            backend.submit_job({"type": "story", "params": {"prompt": "x"}})

    for traceparent in (TRACEPARENT, "nonsense"):
        await asyncio.to_thread(submit, traceparent)
    below, of_nobody = named(spans, "submit story")
    assert below.parent is not None and below.parent.span_id == int("b" * 16, 16)
    assert of_nobody.parent is None
    app.close()


async def test_a_job_of_a_schedule_has_a_submit_span_above_its_run(store_url: str, spans: InMemorySpanExporter) -> None:
    app = make_app(store_url)
    async with app.running():
        await app.schedule("often", "story", every=1, params={"prompt": "x"})
        await until(lambda: named(spans, "run story"))
    submissions = [context_of(span).span_id for span in named(spans, "submit story")]
    for run in named(spans, "run story"):
        assert run.parent is not None and run.parent.span_id in submissions
    app.close()


async def test_a_job_from_the_api_has_a_submit_span_between_the_callers_and_its_run(
    store_url: str, spans: InMemorySpanExporter
) -> None:
    app = make_app(store_url)
    async with app.running():
        async with client_of(app) as client:
            body = {"type": "story", "params": {"prompt": "x"}}
            answer = await client.post("/api/jobs", json=body, headers={"traceparent": TRACEPARENT})
        assert answer.status_code == 201, answer.text
        await until(lambda: value(app.store, "SELECT count(*) FROM job_runs WHERE status = 'COMPLETED'") == 1)
    submit = check_run_below_submission(spans)
    assert submit.parent is not None and submit.parent.span_id == int("b" * 16, 16)
    assert context_of(submit).trace_id == int("a" * 32, 16)
    app.close()


async def test_a_triggered_schedule_has_a_submit_span_below_the_span_of_who_triggered_it(
    store_url: str, spans: InMemorySpanExporter
) -> None:
    app = make_app(store_url)
    async with app.running():
        schedule = await app.schedule("seldom", "story", every=86_400, params={"prompt": "x"})
        async with client_of(app) as client:
            answer = await client.post(f"/api/schedules/{schedule.id}/trigger", headers={"traceparent": TRACEPARENT})
        assert answer.status_code == 201, answer.text
        await until(lambda: value(app.store, "SELECT count(*) FROM job_runs WHERE status = 'COMPLETED'") == 1)
    submit = check_run_below_submission(spans)
    assert submit.parent is not None and submit.parent.span_id == int("b" * 16, 16)
    app.close()


async def test_the_run_of_a_direct_request_is_below_the_span_of_its_caller(
    store_url: str, spans: InMemorySpanExporter
) -> None:
    app = make_app(store_url)
    async with app.running():
        with trace.get_tracer_provider().get_tracer("program").start_as_current_span("caller") as caller:
            await app.direct("story", prompt="x")
        async with client_of(app) as client:
            answers = [
                await client.post(
                    "/api/direct/story", json={"params": {"prompt": "x"}}, headers={"traceparent": traceparent}
                )
                for traceparent in (TRACEPARENT, "nonsense")
            ]
        assert [answer.status_code for answer in answers] == [200, 200]
    of_app, of_api, of_nobody = named(spans, "run story")
    assert of_app.parent is not None and of_app.parent.span_id == caller.get_span_context().span_id
    assert of_api.parent is not None and of_api.parent.span_id == int("b" * 16, 16)
    assert context_of(of_api).trace_id == int("a" * 32, 16)
    assert of_nobody.parent is None
    app.close()


async def test_jobs_of_one_batch_share_a_span_and_a_traceparent_that_is_none_is_ignored(
    store_url: str, spans: InMemorySpanExporter
) -> None:
    app = make_app(store_url)
    await app.enqueue_many([app.call("story", prompt="x"), app.call("fails")])
    assert named(spans, "submit 2 jobs")
    assert tracing.span_context("00-zz-1-01") is None
    assert tracing.span_context("00-" + "0" * 32 + "-" + "b" * 16 + "-01") is None
    assert tracing.span_context("01-" + "a" * 32 + "-" + "b" * 16 + "-01") is None
    assert tracing.span_context(None) is None
    app.close()
