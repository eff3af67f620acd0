"""Waits: what the next job of a chain waits for, so that its handler can go on without having held a slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from holdbeat.domain.bounds import YEAR_S, check_duration_s
from holdbeat.domain.clock import from_iso, iso
from holdbeat.domain.duration import Duration, duration_s
from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import check_json

MAX_PAYLOAD_BYTES = 262_144
LONGEST_WAIT_S = 10 * YEAR_S
_NAME_MAX = 200


def wait_s(duration: Duration, field: str = "duration") -> float:
    """The seconds of a wait; one whose end no calendar has is refused."""
    return check_duration_s(duration_s(duration, field=field), field, 0, LONGEST_WAIT_S)


class WaitKind(StrEnum):
    SLEEP = "sleep"
    SIGNAL = "signal"
    CHILD = "child"
    QUESTION = "question"


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


def check_signal_name(name: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= _NAME_MAX or not name.isprintable() or name != name.strip():
        raise Invalid(
            f"A signal's name has 1 to {_NAME_MAX} printable characters and no blanks around it.",
            code="invalid_signal_name",
            field="name",
        )
    return name


def check_payload(payload: Any) -> None:
    check_json(payload, field="payload", max_bytes=MAX_PAYLOAD_BYTES)
