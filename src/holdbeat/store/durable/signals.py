"""Signals: named messages to a chain, kept until the chain goes.

Guards WAIT-03: a signal is numbered and stored while the unfinished jobs of its chain are locked. A run that ends to
wait for it holds the same lock, so none is lost between the look and the wait, and none is taken twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.bounds import check_printable_name
from holdbeat.domain.clock import from_iso, iso
from holdbeat.domain.errors import Conflict
from holdbeat.domain.params import dumps
from holdbeat.domain.waits import WaitKind, check_payload
from holdbeat.store.durable.continuing import open_waiting
from holdbeat.store.durable.steps import ChainCall, lease_gone, lock_lease, outcome_of
from holdbeat.store.reads.rows import JOBS
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, Transaction


@dataclass(frozen=True, slots=True)
class Signal:
    job_id: str
    """The first job of the chain."""
    name: str
    number: int
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class SignalWait(ChainCall):
    name: str
    number: int


def send_signal(tx: Transaction, job_id: str, name: str, payload: Any = None, sent_by: str | None = None) -> Signal:
    """Stores a signal to the chain of a job, and opens the job that waits for it. An ended chain is a Conflict."""
    check_printable_name(name, "signal")
    check_payload(payload)
    row = tx.one("SELECT COALESCE(root_id, id) FROM jobs WHERE id = :id", id=job_id)
    if row is None:
        raise JOBS.unknown(job_id)
    root_id = str(row[0])
    # Signals of one name are numbered one after the other.
    tx.rows("SELECT id FROM jobs WHERE id = :id FOR UPDATE", id=root_id)
    unfinished = unfinished_jobs(tx, root_id)
    if not unfinished:
        raise Conflict(
            f"The chain of job {job_id} has ended; nobody is left to take the signal {name!r}.",
            code="already_ended",
            job_id=job_id,
        )
    last = tx.one("SELECT max(number) FROM signals WHERE root_id = :id AND name = :name", id=root_id, name=name)
    number = int((last[0] if last else None) or 0) + 1
    tx.insert(
        "signals",
        ("root_id", "name", "number", "payload", "sent_by", "sent_at"),
        [(root_id, name, number, dumps(payload), sent_by, tx.now)],
    )
    # A claim that came meanwhile has passed over those that are locked here.
    tx.wake(Topic.READY)
    tx.record(events.SIGNAL_SENT, job_id=unfinished[-1][0], signal=name, number=number, sent_by=sent_by)
    open_if(
        tx,
        unfinished,
        lambda wait: wait["kind"] == WaitKind.SIGNAL and wait["name"] == name and wait["number"] <= number,
    )
    return Signal(root_id, name, number, tx.now)


def unfinished_jobs(tx: Transaction, root_id: str) -> list[Row]:
    """The unfinished jobs of a chain, locked: id, status and waits."""
    while True:
        unfinished = tx.rows(f"{_UNFINISHED} FOR UPDATE", id=root_id)
        # A look that waited for a run which ended meanwhile does not see the job that follows it, and that one may end
        # while the next look waits for it. So this goes on until a look that waits for nobody sees no other job.
        if tx.dialect == "sqlite" or tx.rows(_UNFINISHED, id=root_id) == unfinished:
            return unfinished


_UNFINISHED = (
    "SELECT id, status, waits FROM jobs WHERE status IN ('QUEUED', 'RUNNING') AND id IN (SELECT id FROM jobs "
    "WHERE root_id = :id AND root_id IS NOT NULL AND status IN ('QUEUED', 'RUNNING') "
    "UNION ALL SELECT id FROM jobs WHERE id = :id) ORDER BY id"
)


def open_if(tx: Transaction, unfinished: list[Row], is_over: Callable[[dict[str, Any]], bool]) -> None:
    """Opens those of the unfinished jobs that have a wait which is over."""
    waiting = [
        job_id
        for job_id, status, waits in unfinished
        if status == "QUEUED" and any(is_over(wait) for wait in json.loads(waits or "[]"))
    ]
    if waiting:
        open_waiting(tx, waiting)


def look_for_signal(tx: Transaction, wait: SignalWait) -> dict[str, Any]:
    """How a wait stands: {payload}, {timed_out}, or {until} when it will be over (None: no end of its own)."""
    outcome = outcome_of(tx, wait) or {}
    if outcome.get("timed_out"):
        return {"timed_out": True}
    signal = tx.one(
        "SELECT payload FROM signals WHERE root_id = :id AND name = :name AND number = :number",
        id=wait.root_id,
        name=wait.name,
        number=wait.number,
    )
    if signal is not None:
        return {"payload": json.loads(signal[0])}
    until = outcome.get("until")
    return {"until": until, "is_due": until is not None and from_iso(until) <= tx.now}


def give_up_waiting(tx: Transaction, wait: SignalWait) -> dict[str, Any]:
    """Keeps that the wait has timed out, unless its signal has come in the meantime."""
    if not lock_lease(tx, wait):
        raise lease_gone(wait.key)
    standing = look_for_signal(tx, wait)
    if "until" not in standing:
        return standing
    text = dumps({"until": standing["until"] or iso(tx.now), "timed_out": True})
    tx.execute(
        "INSERT INTO steps (root_id, name, value, size, started_at, duration_s, run_id, kept_at) "
        "VALUES (:root_id, :key, :value, :size, :now, 0, :run_id, :now) "
        "ON CONFLICT (root_id, name) DO UPDATE SET value = excluded.value",
        root_id=wait.root_id,
        key=wait.key,
        value=text,
        size=len(text),
        now=tx.now,
        run_id=wait.lease_id,
    )
    return {"timed_out": True}
