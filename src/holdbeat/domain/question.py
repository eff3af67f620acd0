"""Questions: what a handler asks people, and which answers fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import check_json, check_text
from holdbeat.domain.schema import Schema, validate
from holdbeat.domain.waits import MAX_PAYLOAD_BYTES

LONGEST_QUESTION = 5000
MOST_CHOICES = 100


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a handler waits for a person to answer."""

    id: str
    root_id: str
    """The first job of the chain whose handler asks."""
    question: str
    choices: list[Any] | None
    schema: Schema | None
    asked_at: datetime
    answer: Any = None
    answered_by: str | None = None
    answered_at: datetime | None = None
    title: str = ""
    """Of the job."""


def check_question(question: Any, choices: Any, schema: Any) -> None:
    """Refuses a question that could not be shown or answered."""
    # It may have several lines.
    lines = question.replace("\n", " ") if isinstance(question, str) else question
    check_text(lines, "question", LONGEST_QUESTION)
    if choices is not None and (not isinstance(choices, Sequence) or isinstance(choices, str) or not choices):
        raise Invalid("choices must be a list with at least one answer.", code="invalid_question", field="choices")
    if choices is not None and len(choices) > MOST_CHOICES:
        raise Invalid(f"choices may hold at most {MOST_CHOICES}.", code="invalid_question", field="choices")
    if schema is not None and not isinstance(schema, dict):
        raise Invalid("schema must be a JSON Schema, which is an object.", code="invalid_question", field="schema")
    check_json([choices, schema], field="question", max_bytes=MAX_PAYLOAD_BYTES)


def check_answer(question: Question, answer: Any) -> None:
    """Refuses an answer that is none of the choices, or does not fit the schema."""
    check_json(answer, field="answer", max_bytes=MAX_PAYLOAD_BYTES)
    if question.choices is not None and answer not in question.choices:
        raise Invalid(
            f"The answer must be one of: {', '.join(str(choice) for choice in question.choices)}.",
            code="invalid_answer",
            field="answer",
        )
    if question.schema is not None:
        validate(question.schema, answer, field="answer")
