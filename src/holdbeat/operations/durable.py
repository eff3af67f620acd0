"""Operations on chains of jobs: their steps, signals to them, the graph around them, and their questions to people."""

from __future__ import annotations

from typing import Any

from holdbeat.domain.job import Job
from holdbeat.domain.params import dumps
from holdbeat.domain.steps import OpenStep, Step
from holdbeat.domain.views import form, question_json
from holdbeat.operations.checks import id_of, page_json
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.schemas import durable as schemas
from holdbeat.schemas.durable import GraphEdge, GraphNode
from holdbeat.store.durable import questions, signals, steps
from holdbeat.store.reads.graph import Graph, graph_of
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.reads.questions import open_questions
from holdbeat.store.transaction import Transaction

VALUE_MAX = 2000
"""A value that is longer as JSON is cut, and then is a text."""


@reads
def list_steps(tx: Transaction, context: OperationContext, job_id: str) -> Any:
    """List the stored steps of a job's chain, in order, with long values cut, and the current steps of the job."""
    job = load_job(tx, id_of(tx, job_id, "job"))
    kept = [_step_json(step) for step in steps.list_steps(tx, job.chain_id)]
    return {"items": kept + [_open_step_json(step, job) for step in job.open_steps]}


@reads
def list_questions(
    tx: Transaction, context: OperationContext, *, limit: int | None = None, cursor: str | None = None
) -> Any:
    """List the questions of handlers that are not answered yet, the oldest first."""
    return page_json(open_questions(tx, limit=limit, cursor=cursor), question_json)


@writes
def answer_question(tx: Transaction, context: OperationContext, question_id: str, answer: Any) -> Any:
    """Answer a question; the handler that asked it goes on."""
    return question_json(questions.answer_question(tx, id_of(tx, question_id, "question"), answer, context.caller))


@reads
def get_graph(tx: Transaction, context: OperationContext, job_id: str) -> Any:
    """Read the graph around a job: what it depends on, what depends on it, and so on in both directions."""
    return graph_json(graph_of(tx, load_job(tx, id_of(tx, job_id, "job")).id))


def graph_json(graph: Graph) -> dict[str, Any]:
    return {
        "nodes": [
            form(node, GraphNode, kind="group" if node.is_group else "job", is_centre=node.id == graph.centre)
            for node in graph.nodes
        ],
        "edges": [
            form(link.edge, GraphEdge, **{"from": link.source, "to": link.target, "as": link.edge.name})
            for link in graph.links
        ],
        "is_cut": graph.is_cut,
    }


@writes
def send_signal(tx: Transaction, context: OperationContext, job_id: str, name: str, payload: Any = None) -> Any:
    """Send a signal to a job's chain; it stays there until a handler waits for it."""
    return form(signals.send_signal(tx, id_of(tx, job_id, "job"), name, payload, context.caller), schemas.Signal)


def _open_step_json(step: OpenStep, job: Job) -> dict[str, Any]:
    assert job.run is not None
    return form(step, schemas.Step, value=None, is_cut=False, duration_s=None, size=None, run_id=job.run.id)


def _step_json(step: Step) -> dict[str, Any]:
    is_cut = step.size > VALUE_MAX
    return form(step, schemas.Step, value=dumps(step.value)[:VALUE_MAX] + "…" if is_cut else step.value, is_cut=is_cut)
