"""Questions in the store: asked once in a chain, listed while nobody has answered, answered once (WAIT-05).

Guards against an answer that nobody takes: whoever answers locks the unfinished jobs of the chain, and a run that ends
to wait for the answer holds the same lock, as with signals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.errors import Conflict, NotFound
from holdbeat.domain.params import dumps
from holdbeat.domain.waits import Question, WaitKind, check_answer, check_question
from holdbeat.store.durable.signals import open_if, unfinished_jobs
from holdbeat.store.durable.steps import ChainCall, keep_outcome, lease_gone, lock_lease, outcome_of
from holdbeat.store.reads.questions import read_questions
from holdbeat.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Asked(ChainCall):
    """A question of a handler. The chain keeps its id."""

    question: str
    choices: Sequence[Any] | None = None
    schema: dict[str, Any] | None = None


def ask_question(tx: Transaction, request: Asked) -> dict[str, Any]:
    """How a question stands, asked now or by an earlier run of the chain: {id, is_answered, answer}."""
    if not lock_lease(tx, request):
        raise lease_gone(request.key)
    outcome = outcome_of(tx, request)
    if outcome is not None:
        question = _question(tx, outcome["question_id"])
        return {"id": question.id, "is_answered": question.answered_at is not None, "answer": question.answer}
    check_question(request.question, request.choices, request.schema)
    question_id = tx.new_id()
    choices = None if request.choices is None else dumps(list(request.choices))
    schema = None if request.schema is None else dumps(request.schema)
    tx.insert(
        "questions",
        ("id", "root_id", "question", "choices", "schema", "asked_at"),
        [(question_id, request.root_id, request.question, choices, schema, tx.now)],
    )
    keep_outcome(tx, request, {"question_id": question_id})
    tx.record(events.QUESTION_ASKED, job_id=request.job_id, question_id=question_id)
    return {"id": question_id, "is_answered": False, "answer": None}


def answer_question(tx: Transaction, question_id: str, answer: Any, answered_by: str | None = None) -> Question:
    """Keeps the answer, and opens the job that waits for it. An answered question, or an ended chain, is a Conflict."""
    question = _question(tx, question_id)
    unfinished = unfinished_jobs(tx, question.root_id)
    # Again, under the lock: two may answer at once.
    question = _question(tx, question_id)
    if question.answered_at is not None:
        by = f" by {question.answered_by}" if question.answered_by else ""
        raise Conflict(f"The question {question_id} was answered already{by}.", code="already_answered")
    if not unfinished:
        raise Conflict(
            f"The chain of job {question.root_id} has ended; nobody waits for the answer any more.",
            code="already_ended",
        )
    check_answer(question, answer)
    tx.execute(
        "UPDATE questions SET answer = :answer, answered_by = :by, answered_at = :now WHERE id = :id",
        id=question_id,
        answer=dumps(answer),
        by=answered_by,
        now=tx.now,
    )
    tx.record(events.QUESTION_ANSWERED, job_id=unfinished[-1][0], question_id=question_id, by=answered_by)
    open_if(tx, unfinished, lambda wait: wait["kind"] == WaitKind.QUESTION and wait["question_id"] == question_id)
    return _question(tx, question_id)


def _question(tx: Transaction, question_id: str) -> Question:
    questions = read_questions(tx, [question_id])
    if not questions:
        raise NotFound(f"There is no question {question_id}.", question_id=question_id)
    return questions[0]
