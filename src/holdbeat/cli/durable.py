"""Commands about chains of jobs: their steps, and signals to them."""

from __future__ import annotations

from typing import Any

import click

from holdbeat.cli.arguments import json_text, typed
from holdbeat.cli.backend import Backend
from holdbeat.cli.options import JSON, example, reaching
from holdbeat.cli.output import instant, show, shown, table
from holdbeat.domain.params import dumps


@click.command(epilog=example("holdbeat signal JOB approved", 'holdbeat signal JOB approved \'{"by": "ann"}\''))
@click.argument("job_id", metavar="JOB")
@click.argument("name")
@click.argument("payload", required=False, metavar="[JSON|@FILE|-]")
@JSON
@reaching
def signal(backend: Backend, job_id: str, name: str, payload: str | None, as_json: bool) -> None:
    """Send a signal to a JOB's chain, for a handler that waits for it now or later."""
    value = None if payload is None else json_text(payload, what="the payload")
    sent = backend.send_signal(job_id, name, value)
    show(sent, lambda signal: [f"Signal {signal['name']} number {signal['number']} is sent."], as_json=as_json)


@click.command(epilog=example("holdbeat rerun JOB --from-step embed"))
@click.argument("job_id", metavar="JOB")
@click.option("--from-step", metavar="NAME", help="Begin at this step, with copies of those kept before it.")
@JSON
@reaching
def rerun(backend: Backend, job_id: str, from_step: str | None, as_json: bool) -> None:
    """Run the chain of a JOB once more, as a new one: from its start, or from a step."""
    show(backend.rerun_job(job_id, from_step=from_step), lambda job: [job["id"]], as_json=as_json)


@click.command(epilog=example("holdbeat questions"))
@JSON
@reaching
def questions(backend: Backend, as_json: bool) -> None:
    """List the questions that handlers ask and nobody has answered."""
    show(backend.list_questions(), lambda page: [_questions_table(page["items"])], as_json=as_json)


@click.command(epilog=example("holdbeat answer QUESTION yes", "holdbeat answer QUESTION '{\"price\": 20}'"))
@click.argument("question_id", metavar="QUESTION")
@click.argument("text", metavar="ANSWER")
@JSON
@reaching
def answer(backend: Backend, question_id: str, text: str, as_json: bool) -> None:
    """Answer a QUESTION: with a text, or with JSON where that is meant."""
    answered = backend.answer_question(question_id, typed(text))
    show(answered, lambda each: [f"Answered: {shown(each['question'])}"], as_json=as_json)


def _questions_table(items: list[Any]) -> Any:
    if not items:
        return "No handler asks anything."
    rows = [
        (
            each["id"], each["job_id"], each["title"], each["question"][:100],
            ", ".join(str(choice) for choice in each["choices"] or ()), instant(each["asked_at"]),
        )
        for each in items
    ]  # fmt: skip
    return table(("question", "job", "title", "asks", "choices", "asked"), rows)


@click.command(epilog=example("holdbeat steps JOB"))
@click.argument("job_id", metavar="JOB")
@JSON
@reaching
def steps(backend: Backend, job_id: str, as_json: bool) -> None:
    """List the steps that a JOB's chain has kept, in order, and those in which it is."""
    show(backend.list_steps(job_id), lambda page: [_steps_table(page["items"])], as_json=as_json)


def _steps_table(items: list[Any]) -> Any:
    if not items:
        return "The chain has kept no steps."
    rows = [
        (
            step["name"], step["started_at"],
            *(("not ended", "", "") if step["duration_s"] is None else _kept(step)),
        )
        for step in items
    ]  # fmt: skip
    return table(("step", "started", "took", "bytes", "value"), rows)


def _kept(step: Any) -> tuple[str, str, str]:
    value = step["value"] if step["is_cut"] else dumps(step["value"])
    return f"{step['duration_s']:.3g} s", str(step["size"]), value[:60]
