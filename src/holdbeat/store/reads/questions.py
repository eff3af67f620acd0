"""Reading questions: by their ids, and those that are open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdbeat.domain.bounds import check_instant
from holdbeat.domain.clock import iso
from holdbeat.domain.waits import Question
from holdbeat.store.reads.pagination import Conditions, Cursors, Page, check_limit
from holdbeat.store.transaction import Row, Transaction

_COLUMNS = (
    "q.id, q.root_id, q.question, q.choices, q.schema, q.asked_at, q.answer, q.answered_by, q.answered_at, "
    "j.title, j.type"
)
_UNFINISHED = (
    "(j.status IN ('QUEUED', 'RUNNING') OR EXISTS (SELECT 1 FROM jobs t WHERE t.root_id = q.root_id "
    "AND t.root_id IS NOT NULL AND t.status IN ('QUEUED', 'RUNNING')))"
)
_OPEN = f"questions q JOIN jobs j ON j.id = q.root_id WHERE q.answered_at IS NULL AND {_UNFINISHED}"


def read_questions(tx: Transaction, question_ids: Sequence[str]) -> list[Question]:
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM questions q LEFT JOIN jobs j ON j.id = q.root_id WHERE q.id IN :ids ORDER BY q.id",
        ids=list(question_ids),
    )
    return [_question_of(tx, row) for row in rows]


def open_questions(
    tx: Transaction, root_id: str | None = None, *, limit: int | None = None, cursor: str | None = None
) -> Page[Question]:
    """The unanswered questions of one unfinished chain, or of all of them, the oldest first."""
    count = check_limit(limit)
    cursors = Cursors("questions", {"root_id": root_id})
    conditions = Conditions()
    if root_id is not None:
        conditions.add("q.root_id = :root_id", root_id=root_id)
    if (last := cursors.read(cursor, str, str)) is not None:
        asked_at = check_instant(last[0], "cursor")
        conditions.add("(q.asked_at, q.id) > (:asked_at, :last_id)", asked_at=asked_at, last_id=last[1])
    rows = tx.rows(
        f"SELECT {_COLUMNS} FROM {_OPEN} AND {conditions.where} ORDER BY q.asked_at, q.id LIMIT :count",
        count=count + 1,
        **conditions.params,
    )
    items = [_question_of(tx, row) for row in rows[:count]]
    return Page(items, cursors.write(iso(items[-1].asked_at), items[-1].id) if len(rows) > count else None)


def count_open_questions(tx: Transaction) -> int:
    """How many there are in unfinished chains; of many how many there were a few seconds ago."""

    def count() -> tuple[int, int]:
        amount = tx.count(f"SELECT count(*) FROM {_OPEN}")
        return amount, amount

    return tx.terms.counts.get("questions", count)


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
