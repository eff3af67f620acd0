"""Commands about chains of jobs: their steps, signals to them, and the graph around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from holdbeat.cli.arguments import json_text, typed, untyped
from holdbeat.cli.backend import Backend
from holdbeat.cli.options import example, printing
from holdbeat.cli.output import at, its_id, rows_of, shown, table
from holdbeat.domain.params import dumps


@click.command(epilog=example("holdbeat signal JOB approved", 'holdbeat signal JOB approved \'{"by": "ann"}\''))
@click.argument("job_id", metavar="JOB")
@click.argument("name")
@click.argument("payload", required=False, metavar="[JSON|@FILE|-]")
@printing(lambda signal: [f"Signal {signal['name']} number {signal['number']} is sent."])
def signal(backend: Backend, job_id: str, name: str, payload: str | None) -> Any:
    """Send a signal to a JOB's chain, for a handler that waits for it now or later."""
    return backend.send_signal(job_id, name, None if payload is None else json_text(payload, what="the payload"))


@click.command(epilog=example("holdbeat rerun JOB --from-step embed"))
@click.argument("job_id", metavar="JOB")
@click.option("--from-step", metavar="NAME", help="Begin at this step, with copies of the steps before it.")
@printing(its_id)
def rerun(backend: Backend, job_id: str, from_step: str | None) -> Any:
    """Run the chain of a JOB once more, as a new one: from its start, or from a step."""
    return backend.rerun_job(job_id, from_step=from_step)


@click.command(epilog=example("holdbeat questions"))
@printing(lambda page: [_questions_table(page["items"])], is_paged=True)
def questions(backend: Backend, **filters: Any) -> Any:
    """List the questions of handlers that are not answered yet, the oldest first."""
    return backend.list_questions(**filters)


@click.command(epilog=example("holdbeat answer QUESTION yes", "holdbeat answer QUESTION '{\"price\": 20}'"))
@click.argument("question_id", metavar="QUESTION")
@click.argument("text", metavar="ANSWER")
@printing(lambda answered: [f"Answered: {shown(answered['question'])}"])
def answer(backend: Backend, question_id: str, text: str) -> Any:
    """Answer a QUESTION, with text or with JSON."""
    return backend.answer_question(question_id, typed(text))


def _questions_table(items: list[Any]) -> Any:
    if not items:
        return "No handler asks anything."
    return rows_of(
        items,
        (
            ("question", "id"),
            ("job", "job_id"),
            "title",
            ("asks", lambda question: question["question"][:100]),
            ("choices", lambda question: ", ".join(untyped(choice) for choice in question["choices"] or ())),
            ("asked", at("asked_at")),
        ),
    )


@click.command(epilog=example("holdbeat steps JOB"))
@click.argument("job_id", metavar="JOB")
@printing(lambda page: [_steps_table(page["items"])])
def steps(backend: Backend, job_id: str) -> Any:
    """List the stored steps of a JOB's chain, in order, and its current steps."""
    return backend.list_steps(job_id)


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


def _tree(graph: Mapping[str, Any]) -> list[Any]:
    nodes = {node["id"]: node for node in graph["nodes"]}
    below: dict[str, list[Mapping[str, Any]]] = {}
    for edge in graph["edges"]:
        below.setdefault(edge["from"], []).append(edge)
    targets = {edge["to"] for edge in graph["edges"]}
    lines: list[Any] = []
    printed: set[str] = set()
    stack = [(node_id, "", "", None) for node_id in reversed(nodes) if node_id not in targets]
    while stack:
        node_id, lead, indent, name = stack.pop()
        is_again = node_id in printed and node_id in below
        lines.append(lead + _line(nodes[node_id], name) + (" (see above)" if is_again else ""))
        if is_again:
            continue
        printed.add(node_id)
        edges = below.get(node_id, [])
        for number, edge in reversed(list(enumerate(edges, 1))):
            is_last = number == len(edges)
            lead, deeper = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            stack.append((edge["to"], indent + lead, indent + deeper, edge["as"]))
    if graph["is_cut"]:
        lines.append("There is more: only the nearest jobs are printed.")
    return lines


def _line(node: Mapping[str, Any], name: str | None) -> str:
    noun = "group " if node["kind"] == "group" else ""
    called = f" (reads it as {shown(name)})" if name else ""
    mark = " <- this job" if node["is_centre"] else ""
    return f"{noun}{shown(node['title'])} {node['last_job_id'] or node['id']} {node['status']}{called}{mark}"


@click.command(epilog=example("holdbeat graph JOB"))
@click.argument("job_id", metavar="JOB")
@printing(_tree)
def graph(backend: Backend, job_id: str) -> Any:
    """Print the graph around a JOB: below each job are the jobs that wait for it."""
    return backend.get_graph(job_id)
