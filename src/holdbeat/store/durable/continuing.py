"""Continuing: a handler that waits ends its run, and the next job of its chain goes on when the wait is over.

Guards WAIT-01: the next job is made in the transaction that ends the run. Guards WAIT-03 together with `signals.py`:
both lock the job that ends, so either this sees the signal, or the signal sees the job that waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import Conflict
from holdbeat.domain.job import Job
from holdbeat.domain.params import dumps
from holdbeat.domain.retry import continuation
from holdbeat.domain.waits import SLEEP, Wait, WaitKind
from holdbeat.store.queue.enqueue import insert_jobs
from holdbeat.store.reads.children import child_standing
from holdbeat.store.reads.questions import answered
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction

Continued = tuple[Job, str, tuple[Wait, ...]]
"""A job that is CONTINUED, locked, its run, and what its handler waits for."""


def continue_chains(tx: Transaction, continued: Sequence[Continued]) -> None:
    """Makes the next job of each chain."""
    _keep_ends(tx, continued)
    sent = _sent(tx, continued)
    ended = _ended_children(tx, continued) | _answered(tx, continued)
    requests = []
    for job, _, waits in continued:
        is_over = any((job.chain_id, wait.name, wait.number) in sent or wait.name in ended for wait in waits)
        requests.append(continuation(job, waits, tx.now, is_over=is_over))
    for (job, _, _), following in zip(continued, insert_jobs(tx, requests), strict=True):
        job.retried_by = following.id
        tx.record(
            events.JOB_CONTINUED,
            job_id=following.id,
            group_id=job.group_id,
            schedule_id=job.schedule_id,
            continues=job.id,
            waits=following.waits,
        )
    tx.execute(
        "UPDATE jobs SET retried_by = c.next FROM rows(:links; id text, next text) AS c WHERE jobs.id = c.id",
        links=[(job.id, job.retried_by) for job, _, _ in continued],
    )


def _keep_ends(tx: Transaction, continued: Sequence[Continued]) -> None:
    """Keeps when each wait is over at the latest, at the first arrival."""
    rows = []
    for job, run_id, waits in continued:
        for wait in waits:
            until = wait.ends_at(tx.now)
            if until is not None and wait.until is None:
                text = dumps({"until": iso(until)})
                rows.append((job.chain_id, wait.key, text, len(text), tx.now, 0.0, run_id, tx.now))
    if rows:
        tx.execute(
            "INSERT INTO steps (root_id, name, value, size, started_at, duration_s, run_id, kept_at) "
            "SELECT e.root_id, e.name, e.value, e.size, e.started_at, e.duration_s, e.run_id, e.kept_at "
            "FROM rows(:rows; root_id text, name text, value json, size int, started_at time, duration_s real, "
            "run_id text, kept_at time) AS e WHERE 1 = 1 ON CONFLICT (root_id, name) DO NOTHING",
            rows=rows,
        )


def _sent(tx: Transaction, continued: Sequence[Continued]) -> set[tuple[str, str | None, int]]:
    """The waits for signals that are there already."""
    awaited = {
        (job.chain_id, wait.name, wait.number)
        for job, _, waits in continued
        for wait in waits
        if wait.kind is WaitKind.SIGNAL
    }
    if not awaited:
        return set()
    rows = tx.rows(
        "SELECT s.root_id, s.name, s.number FROM signals s JOIN rows(:wanted; root_id text, name text, number int) "
        "AS w ON s.root_id = w.root_id AND s.name = w.name AND s.number = w.number",
        wanted=sorted(awaited, key=repr),
    )
    return {(row[0], row[1], row[2]) for row in rows}


def _ended_children(tx: Transaction, continued: Sequence[Continued]) -> set[str | None]:
    """The waits for children that have ended already."""
    children = [
        wait.name
        for _, _, waits in continued
        for wait in waits
        if wait.kind is WaitKind.CHILD and wait.name is not None
    ]
    if not children:
        return set()
    return {child_id for child_id, standing in child_standing(tx, children).items() if standing["is_over"]}


def _answered(tx: Transaction, continued: Sequence[Continued]) -> set[str | None]:
    """The waits for questions that are answered already."""
    waits = [wait for _, _, waits in continued for wait in waits if wait.kind is WaitKind.QUESTION]
    return {*answered(tx, [wait.name for wait in waits if wait.name is not None])} if waits else set()


def open_waiting(tx: Transaction, job_ids: Sequence[str]) -> None:
    """Lets jobs whose wait is over into the queue."""
    tx.execute(
        "UPDATE jobs SET hold = 0, not_before = NULL, ages_at = :now "
        "WHERE id IN :ids AND status = 'QUEUED' AND hold IN (1, 4)",
        ids=job_ids,
        now=tx.now,
    )
    tx.wake(Topic.READY)


def move_sleep(tx: Transaction, job: Job, until: datetime) -> list[dict[str, Any]]:
    """Lets the sleep of a chain end at another instant, also for its handler. Returns what the chain waits for then.

    Refused where it waits for anything else: the handler would only wait for that again.
    """
    waits = job.waits or []
    if len(waits) != 1 or waits[0]["kind"] != WaitKind.SLEEP:
        raise Conflict(
            f"Job {job.id} does not only sleep, so no instant lets it go on. {_what_ends(job.id, waits)}",
            code="not_sleeping",
            job_id=job.id,
        )
    outcome = dumps({"until": waits[0]["until"]})
    sleeps = tx.rows(
        "SELECT name, value FROM steps WHERE root_id = :id AND name LIKE :sleeps", id=job.chain_id, sleeps=f"{SLEEP}%"
    )
    text = dumps({"until": iso(until)})
    tx.execute(
        "UPDATE steps SET value = :value, size = :size WHERE root_id = :id AND name IN :names",
        value=text,
        size=len(text),
        id=job.chain_id,
        names=[name for name, value in sleeps if value == outcome],
    )
    return [{**waits[0], "until": iso(until)}]


def _what_ends(job_id: str, waits: Sequence[dict[str, Any]]) -> str:
    ends = []
    for wait in waits:
        match wait["kind"]:
            case WaitKind.SIGNAL:
                ends.append(f"send it the signal {wait['name']!r} (`holdbeat signal {job_id} {wait['name']}`)")
            case WaitKind.QUESTION:
                ends.append(f"answer its question (`holdbeat answer {wait['question_id']} ANSWER`)")
            case WaitKind.CHILD:
                ends.append(f"wait for its child, job {wait['job_id']}, or cancel that")
            case _:
                ends.append(f"wait for the end of its sleep at {wait['until']}")
    sentence = ", or ".join(ends)
    return f"{sentence[:1].upper()}{sentence[1:]}."
