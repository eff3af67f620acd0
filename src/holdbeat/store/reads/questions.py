"""Reading questions: by their ids, and those that are open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdbeat.domain.waits import Question
from holdbeat.store.transaction import Row, Transaction

MOST_OPEN = 500
_COLUMNS = (
    "q.id, q.root_id, q.question, q.choices, q.schema, q.asked_at, q.answer, q.answered_by, q.answered_at, "
    "j.title, j.type"
)
_UNFINISHED = (
    "(j.status IN ('QUEUED', 'RUNNING') OR EXISTS (SELECT 1 FROM jobs t WHERE t.root_id = q.root_id "
    "AND t.root_id IS NOT NULL AND t.status IN ('QUEUED', 'RUNNING')))"
)


def read_questions(tx: Transaction, question_ids: Sequence[str]) -> list[Question]:
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM questions q LEFT JOIN jobs j ON j.id = q.root_id WHERE q.id IN :ids ORDER BY q.id",
        ids=list(question_ids),
    )
    return [_question_of(tx, row) for row in rows]


def open_questions(tx: Transaction, root_id: str | None = None) -> list[Question]:
    """The unanswered questions of one unfinished chain, or of all of them, the oldest first."""
    of_chain = "" if root_id is None else "AND q.root_id = :root_id "
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM questions q JOIN jobs j ON j.id = q.root_id WHERE q.answered_at IS NULL {of_chain}"
        f"AND {_UNFINISHED} ORDER BY q.asked_at, q.id LIMIT :most",
        most=MOST_OPEN,
        **({} if root_id is None else {"root_id": root_id}),
    )
    return [_question_of(tx, row) for row in rows]


def answered(tx: Transaction, question_ids: Sequence[str]) -> set[str]:
    rows = tx.rows("SELECT id FROM questions WHERE id IN :ids AND answered_at IS NOT NULL", ids=list(question_ids))
    return {row[0] for row in rows}


def _question_of(tx: Transaction, row: Row) -> Question:
    id_, root_id, text, choices, schema, asked_at, answer, answered_by, answered_at, title, type_ = row
    return Question(
        id_, root_id, text, _json(choices), _json(schema), tx.instant(asked_at), _json(answer), answered_by,
        tx.time(answered_at), title or type_ or "deleted",
    )  # fmt: skip


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
