"""Waits: what the next job of a chain waits for, so that its handler can go on without having held a slot; and the
questions that a handler asks people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from holdbeat.domain.bounds import Duration, check_duration_s, duration_s
from holdbeat.domain.clock import from_iso, iso
from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import check_json, check_text, dumps
from holdbeat.domain.schema import Schema, same, validate
from holdbeat.domain.schema_form import fault_of
from holdbeat.schemas.field_bounds import LONGEST_DELAY_S

MAX_PAYLOAD_BYTES = 262_144
SLEEP = "$sleep"
"""The key of a sleep: the first of a run has this one, later ones a number behind it."""


def wait_s(duration: Duration, field: str = "duration") -> float:
    """The seconds of a wait; one whose end no calendar has is refused."""
    return check_duration_s(duration_s(duration, field=field), field, 0, LONGEST_DELAY_S)


class WaitKind(StrEnum):
    SLEEP = "sleep"
    SIGNAL = "signal"
    CHILD = "child"
    QUESTION = "question"


UPSTREAM = "upstream"
"""What a job waits for that was submitted with `after`, or that is the `then` of a group."""
_COUNTED = {
    WaitKind.SLEEP: ("sleeps", "sleep"),
    WaitKind.SIGNAL: ("waits for a signal", "wait for a signal"),
    WaitKind.QUESTION: ("waits for an answer", "wait for an answer"),
    WaitKind.CHILD: ("waits for a child", "wait for a child"),
    UPSTREAM: ("waits for other jobs", "wait for other jobs"),
}


def counted_waits(counts: Mapping[str, int]) -> list[str]:
    """Such as `2 sleep`, for each kind of which there is one."""
    return [
        f"{counts[kind]:,} {many if counts[kind] > 1 else one}"
        for kind, (one, many) in _COUNTED.items()
        if counts[kind]
    ]


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that a handler waits for."""

    kind: WaitKind
    key: str
    """The name under which the chain keeps how the wait stands."""
    until: datetime | None = None
    """When it is over at the latest, where that is kept already."""
    delay_s: float | None = None
    """It is over at the latest so many seconds after it began, where no instant is kept yet."""
    name: str | None = None
    """Of the signal; of a child or a question its id."""
    number: int = 0
    """Which signal of that name, counted from 1."""

    def ends_at(self, now: datetime) -> datetime | None:
        """When it is over at the latest; `now` is when it began."""
        if self.until is not None or self.delay_s is None:
            return self.until
        return now + timedelta(seconds=self.delay_s)

    def message(self) -> dict[str, Any]:
        """The wait on its way from the process of the handler."""
        return {
            "kind": self.kind,
            "key": self.key,
            "until": iso(self.until) if self.until else None,
            "delay_s": self.delay_s,
            "name": self.name,
            "number": self.number,
        }

    @staticmethod
    def of(message: dict[str, Any]) -> Wait:
        until = message["until"]
        return Wait(
            WaitKind(message["kind"]),
            message["key"],
            from_iso(until) if until else None,
            message["delay_s"],
            message["name"],
            message["number"],
        )

    def as_json(self, now: datetime) -> dict[str, Any]:
        """The wait as the job shows it."""
        until = self.ends_at(now)
        answer: dict[str, Any] = {"kind": self.kind, "until": iso(until) if until else None}
        if self.kind is WaitKind.SIGNAL:
            answer |= {"name": self.name, "number": self.number}
        elif self.kind is WaitKind.CHILD:
            answer["job_id"] = self.name
        elif self.kind is WaitKind.QUESTION:
            answer["question_id"] = self.name
        return answer


def earliest(waits: Sequence[Wait], now: datetime) -> datetime | None:
    """The instant at which the first of them is over at the latest; None if none has an end of its own."""
    return min((until for wait in waits if (until := wait.ends_at(now)) is not None), default=None)


def check_payload(payload: Any) -> None:
    check_json(payload, field="payload", max_bytes=MAX_PAYLOAD_BYTES)


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
    if schema is not None and (fault := fault_of(schema)) is not None:
        raise Invalid(f"schema has {fault}.", code="invalid_question", field="schema")


def check_answer(question: Question, answer: Any) -> None:
    """Refuses an answer that is none of the choices, or does not fit the schema."""
    check_json(answer, field="answer", max_bytes=MAX_PAYLOAD_BYTES)
    if question.choices is not None and not any(same(answer, choice) for choice in question.choices):
        raise Invalid(
            f"The answer must be one of: {', '.join(dumps(choice) for choice in question.choices)}.",
            code="invalid_answer",
            field="answer",
        )
    if question.schema is not None:
        validate(question.schema, answer, field="answer")
