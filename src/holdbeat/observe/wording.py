"""The words of explanations: instants, durations, counts, lists and waits as people read them.

Guards exactness: every instant is written in full, with its distance from now beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdbeat.domain.clock import from_iso, iso
from holdbeat.domain.schedule import INDEFINITE
from holdbeat.store.reads.blockers import Blocker
from holdbeat.store.reads.questions import read_questions
from holdbeat.store.transaction import Transaction

NAMED_MAX = 3
"""So many things are named in a sentence; the rest is counted. The fields beside the sentence have them all."""

REASONS: Mapping[str, str] = {
    Blocker.DELAYED: "delayed",
    Blocker.GROUP_PREDECESSOR: "an earlier job of its group must end first",
    Blocker.OVERLAP: "the previous job of its schedule must end first",
    Blocker.UPSTREAM: "a job that it comes after must end first",
    Blocker.WAITING: "waits for what its handler asked for",
    Blocker.PAUSED: "paused",
    Blocker.RESOURCE_FULL: "all slots are in use",
    Blocker.RATE_LIMITED: "its rate permits no start yet",
    Blocker.THROTTLED: "who it calls asked to wait",
    Blocker.POLICY: "the program's policy does not permit it",
    Blocker.RESERVATION_WAITING: "a direct request, a borrowed slot or a gate goes first",
    Blocker.NO_WORKER: "no worker for this type",
    Blocker.WORKERS_BUSY: "all workers are busy",
    "jobs_ahead": "other jobs are ahead of it",
    "expires": "it is skipped if it waits too long",
}
"""Why a job waits, in a few words."""

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60))


def span(amount_s: float) -> str:
    """A duration in its two largest units, such as `2 h 5 min`, `3 min` or `1.5 s`."""
    amount_s = abs(amount_s)
    if amount_s < 60:
        text = f"{amount_s:.1f}".removesuffix(".0") if amount_s < 10 else f"{amount_s:.0f}"
        if text != "60":
            return f"{text} s"
    rest = round(amount_s)
    parts: list[tuple[int, str]] = []
    for name, unit in (*_UNITS, ("s", 1)):
        count, rest = divmod(rest, unit)
        if count or parts:
            parts.append((count, name))
    return " ".join(f"{count} {name}" for count, name in parts[:2] if count)


def moment(at: datetime, now: datetime) -> str:
    """An instant and how far it is: `2026-01-31T09:30:00.000Z (in 3 min)`."""
    if at >= INDEFINITE:
        return "somebody resumes it"
    distance_s = (at - now).total_seconds()
    if abs(distance_s) < 0.05:
        return f"{iso(at)} (now)"
    return f"{iso(at)} (in {span(distance_s)})" if distance_s > 0 else f"{iso(at)} ({span(distance_s)} ago)"


def counted(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_STANDINGS = {
    "QUEUED": "is queued",
    "RUNNING": "is running",
    "COMPLETED": "has completed",
    "FAILED": "failed",
    "SKIPPED": "was skipped",
    "CANCELLED": "was cancelled",
    "CONTINUED": "was continued",
    "PARTIAL": "completed in part",
}


def standing(status: str | None) -> str:
    """The state of a job or a group, as the end of a sentence: `is queued`, `failed`."""
    return _STANDINGS.get(str(status), f"is {status}")


def listed(texts: Iterable[str], most: int | None = None) -> str:
    """The first few by name, the rest as a number. If there are `most`, more may exist, and no number is named."""
    known = list(texts)
    words = known[:NAMED_MAX]
    if len(known) > NAMED_MAX:
        words.append("others" if len(known) == most else f"{len(known) - NAMED_MAX:,} more")
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def because(reason: str | None) -> str:
    return f" ({reason.rstrip('.')})" if reason else ""


def sentence(text: str) -> str:
    """A foreign text as the end of a sentence: one line with a full stop."""
    line = " ".join(text.split())
    return line if line.endswith((".", "!", "?")) else f"{line}."


def reason(code: str, detail: str, **more: Any) -> dict[str, Any]:
    """One reason of an explanation: a code for programs, a sentence for people, and the facts that it names."""
    return {"code": code, "detail": detail, **{name: _plain(value) for name, value in more.items()}}


def _plain(value: Any) -> Any:
    return iso(value) if isinstance(value, datetime) else value


def answer(
    state: str, summary: str, reasons: list[dict[str, Any]], estimated_start: datetime | None = None
) -> dict[str, Any]:
    """An explanation in the one form that the API, the command line and the dashboard show."""
    return {
        "state": str(state),
        "summary": summary,
        "reasons": reasons,
        "estimated_start": None if estimated_start is None else iso(estimated_start),
    }


def wait_words(tx: Transaction, waits: Sequence[dict[str, Any]], *, are_over: bool = False) -> str:
    """The predicate of a sentence about a handler, such as `waits for the signal 'approved', without a limit`.

    A handler that waits for several things in parallel goes on at the first of them.
    """
    verbs = ("slept", "waited") if are_over else ("sleeps", "waits")
    if not waits:
        return verbs[1]
    if len(waits) == 1:
        return _one(tx, waits[0], *verbs)
    return f"{verbs[1]} for the first of {len(waits)}: it {listed(_one(tx, wait, *verbs) for wait in waits)}"


def _one(tx: Transaction, wait: dict[str, Any], sleeps: str, waits: str) -> str:
    until = None if wait.get("until") is None else from_iso(wait["until"])
    match wait.get("kind"):
        case "sleep" if until is not None:
            return f"{sleeps} until {moment(until, tx.now)}"
        case "signal":
            limit = "without a limit" if until is None else f"until {moment(until, tx.now)} at the latest"
            return f"{waits} for the signal {wait['name']!r}, {limit}"
        case "child":
            return f"{waits} for the end of its child, job {wait['job_id']}"
        case "question":
            questions = read_questions(tx, [wait["question_id"]])
            text = f", {' '.join(questions[0].question.split())!r}" if questions else ""
            return f"{waits} for the answer to the question {wait['question_id']}{text}"
    return waits
