"""What jobs and direct requests put out while they run: the lines of their logs, and what they emit (STR-01)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdbeat.domain.bounds import check_whole_number
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import Invalid
from holdbeat.domain.reservation import ReservationStatus
from holdbeat.operations.checks import id_of
from holdbeat.operations.operation import OperationContext, reads
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.running.reservations import lease_of_reservation
from holdbeat.store.running.run_output import LogLine, read_logs
from holdbeat.store.transaction import Transaction

LOG_PAGE = 500
LAST_LINE = 2**62


@dataclass(frozen=True, slots=True)
class Output:
    """The next part of an output: for readers that follow it to its end."""

    status: str
    is_whole: bool
    """Whether no more can come: a run writes its last line before it ends."""
    lines: list[LogLine]


ReadOutput = Callable[..., Output]
"""Of (transaction, id, after, limit, emitted)."""


def job_output(tx: Transaction, job_id: str, after: int, limit: int, emitted: bool = False) -> Output:
    job = load_job(tx, id_of(tx, job_id, "job"))
    is_whole = job.status.is_terminal and (job.run is None or job.run.status is not None)
    return Output(job.status, is_whole, read_logs(tx, job.run.id, after, limit, emitted=emitted) if job.run else [])


def reservation_output(tx: Transaction, reservation_id: str, after: int, limit: int, emitted: bool = False) -> Output:
    reservation_id = id_of(tx, reservation_id, "reservation")
    reservation = RESERVATIONS.get(tx, reservation_id)
    has_ended = reservation.status is not ReservationStatus.ACTIVE
    is_whole = has_ended and lease_of_reservation(tx, reservation_id) is None
    lines = read_logs(tx, reservation_id, after, limit, emitted=emitted)
    return Output(reservation.outcome or reservation.status, is_whole, lines)


@reads
def get_logs(
    tx: Transaction, context: OperationContext, job_id: str, *,
    after: int | None = None, limit: int | None = None, cursor: str | None = None,
) -> Any:  # fmt: skip
    """Read what a job's handler logged."""
    return _page(tx, job_output, job_id, after, limit, cursor, emitted=False)


@reads
def get_chunks(
    tx: Transaction, context: OperationContext, job_id: str, *,
    after: int | None = None, limit: int | None = None, cursor: str | None = None,
) -> Any:  # fmt: skip
    """Read what a job's handler emitted."""
    return _page(tx, job_output, job_id, after, limit, cursor, emitted=True)


@reads
def get_reservation_logs(
    tx: Transaction, context: OperationContext, reservation_id: str, *,
    after: int | None = None, limit: int | None = None, cursor: str | None = None,
) -> Any:  # fmt: skip
    """Read what the handler of a direct request logged."""
    return _page(tx, reservation_output, reservation_id, after, limit, cursor, emitted=False)


@reads
def get_reservation_chunks(
    tx: Transaction, context: OperationContext, reservation_id: str, *,
    after: int | None = None, limit: int | None = None, cursor: str | None = None,
) -> Any:  # fmt: skip
    """Read what the handler of a direct request emitted."""
    return _page(tx, reservation_output, reservation_id, after, limit, cursor, emitted=True)


def _page(
    tx: Transaction, read: ReadOutput, id_: str, after: int | None, limit: int | None, cursor: str | None, *,
    emitted: bool,
) -> dict[str, Any]:  # fmt: skip
    start = check_whole_number(0 if after is None else after, "after", 0, LAST_LINE)
    if cursor is not None:
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 20 and int(cursor) <= LAST_LINE):
            raise Invalid(f"cursor must be a whole number from 0 to {LAST_LINE}.", code="out_of_range", field="cursor")
        start = max(start, int(cursor))
    count = check_whole_number(LOG_PAGE if limit is None else limit, "limit", 1, LOG_PAGE)
    lines = read(tx, id_, start, count, emitted).lines
    next_cursor = str(lines[-1].sequence) if len(lines) == count else None
    form = chunk_json if emitted else line_json
    return {"items": [form(line) for line in lines], "next_cursor": next_cursor}


def line_json(line: LogLine) -> dict[str, Any]:
    """One entry of the log, without the line break at its end."""
    return {
        "sequence": line.sequence,
        "at": iso(line.at),
        "stream": line.stream,
        "text": line.text.removesuffix("\n"),
    }


def chunk_json(line: LogLine) -> dict[str, Any]:
    """One piece of what a handler emitted: text, or any JSON."""
    chunk = json.loads(line.text) if line.stream == "chunk.json" else line.text
    return {"sequence": line.sequence, "at": iso(line.at), "chunk": chunk}
