"""Operations on chains of jobs: their steps, signals to them, the graph around them, and their questions to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdbeat.domain.clock import iso
from holdbeat.domain.params import dumps
from holdbeat.domain.views import question_json
from holdbeat.operations.checks import existing_id, job_id_of
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.store.durable import questions, signals, steps
from holdbeat.store.reads.graph import graph_of
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.reads.questions import open_questions

if TYPE_CHECKING:
    from holdbeat.domain.job import Job
    from holdbeat.domain.steps import OpenStep, Step
    from holdbeat.store.reads.graph import Graph
    from holdbeat.store.transaction import Transaction

VALUE_MAX = 2000
"""A value that is longer as JSON is cut, and then is a text."""


@reads
def list_steps(tx: Transaction, context: OperationContext, job_id: str) -> Any:
    """List the steps that a job's chain has kept, in order, long values cut, and those in which the job is."""
    job = load_job(tx, job_id_of(tx, job_id))
    kept = [_step_json(step) for step in steps.list_steps(tx, job.chain_id)]
    return {"items": kept + [_open_step_json(step, job) for step in job.open_steps]}


@reads
def list_questions(tx: Transaction, context: OperationContext) -> Any:
    """List the questions that handlers ask and nobody has answered, the oldest first; at most 500."""
    return {"items": [question_json(question) for question in open_questions(tx)]}


@writes
def answer_question(tx: Transaction, context: OperationContext, question_id: str, answer: Any) -> Any:
    """Answer a question; the handler that asked it goes on."""
    return question_json(questions.answer_question(tx, existing_id(question_id, "question"), answer, context.caller))


@reads
def get_graph(tx: Transaction, context: OperationContext, job_id: str) -> Any:
    """Read the graph around a job: what it depends on, what depends on it, and so on in both directions."""
    return graph_json(graph_of(tx, load_job(tx, job_id_of(tx, job_id)).id))


def graph_json(graph: Graph) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "id": node.id,
                "kind": "group" if node.is_group else "job",
                "title": node.title,
                "type": node.type,
                "status": node.status,
                "last_job_id": node.last_job_id,
                "is_centre": node.id == graph.centre,
            }
            for node in graph.nodes
        ],
        "edges": [
            {
                "from": link.source,
                "to": link.target,
                "as": link.edge.name,
                "met_at": None if link.edge.met_at is None else iso(link.edge.met_at),
                "outcome": link.edge.outcome,
            }
            for link in graph.links
        ],
        "is_cut": graph.is_cut,
    }


@writes
def send_signal(tx: Transaction, context: OperationContext, job_id: str, name: str, payload: Any = None) -> Any:
    """Send a signal to a job's chain; it stays there until a handler waits for it."""
    signal = signals.send_signal(tx, job_id_of(tx, job_id), name, payload, context.caller)
    return {"job_id": signal.job_id, "name": signal.name, "number": signal.number, "sent_at": iso(signal.sent_at)}


def _open_step_json(step: OpenStep, job: Job) -> dict[str, Any]:
    assert job.run is not None
    return {
        "name": step.name,
        "value": None,
        "is_cut": False,
        "started_at": iso(step.started_at),
        "duration_s": None,
        "size": None,
        "run_id": job.run.id,
    }


def _step_json(step: Step) -> dict[str, Any]:
    value = step.value
    if step.size > VALUE_MAX:
        value = dumps(value)[:VALUE_MAX] + "…"
    return {
        "name": step.name,
        "value": value,
        "is_cut": step.size > VALUE_MAX,
        "started_at": iso(step.started_at),
        "duration_s": step.duration_s,
        "size": step.size,
        "run_id": step.run_id,
    }
