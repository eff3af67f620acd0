"""What the handler of a chain waits for, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdbeat.domain.clock import from_iso
from holdbeat.observe.wording import listed, moment
from holdbeat.store.reads.questions import read_questions
from holdbeat.store.transaction import Transaction


def wait_words(tx: Transaction, waits: Sequence[dict[str, Any]]) -> str:
    """The predicate of a sentence about a handler, such as `waits for the signal 'approved', without a limit`.

    A handler that waits for several things in parallel goes on at the first of them.
    """
    if not waits:
        return "waits"
    if len(waits) == 1:
        return _one(tx, waits[0])
    return f"waits for the first of {len(waits)}: it {listed(_one(tx, wait) for wait in waits)}"


def _one(tx: Transaction, wait: dict[str, Any]) -> str:
    until = None if wait.get("until") is None else from_iso(wait["until"])
    match wait.get("kind"):
        case "sleep" if until is not None:
            return f"sleeps until {moment(until, tx.now)}"
        case "signal":
            limit = "without a limit" if until is None else f"until {moment(until, tx.now)} at the latest"
            return f"waits for the signal {wait['name']!r}, {limit}"
        case "child":
            return f"waits for the end of its child, job {wait['job_id']}"
        case "question":
            asked = read_questions(tx, [wait["question_id"]])
            text = f", {' '.join(asked[0].question.split())!r}" if asked else ""
            return f"waits for the answer to the question {wait['question_id']}{text}"
    return "waits"
