"""Judges what is on record after a crash: nothing lost, nothing run twice behind anyone's back, nothing left over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.transaction import Transaction
from tests.conformance.repair import picture
from tests.crash.life import Diary, Life, recoverer

Entry = dict[str, Any]


class Violation(str):
    """A sentence that begins with its kind: `lost`, `double` or `broken`."""


def judge(store: PersistenceAdapter, diary: Path, me: str) -> list[Violation]:
    """Everything that is wrong, once those who came after have done their work."""
    entries = Diary.read(diary)
    with_reading = store.read_sync(_Record.read)
    violations = [
        *_lost(with_reading, entries),
        *_doubles(with_reading, entries),
        *_left_over(store, me),
        *_steps(entries),
        *_retries(store),
        *_outbox(store),
        # Retention takes due times away by their own age, before or after their jobs.
        *(() if _of(entries, "pruning") else _occurrences(store)),
    ]
    problems: list[str] = getattr(store, "integrity_problems", list)()
    return violations + [Violation(f"broken: integrity: {problem}") for problem in problems]


async def judge_second_recovery(life: Life) -> list[Violation]:
    """Recovery that finds nothing writes nothing, not even an Event (REC-03)."""
    before = picture(life.store)
    repaired = await recoverer(life).step()
    after = picture(life.store)
    if repaired or before != after:
        changed = [table for table in before if before[table] != after[table]]
        return [Violation(f"broken: a second recovery repaired {repaired} and changed {changed}")]
    return []


class _Record:
    """Jobs and runs as the store has them."""

    def __init__(self, jobs: dict[str, Entry], runs: dict[str, Entry]) -> None:
        self.jobs = jobs
        self.runs = runs

    @staticmethod
    def read(tx: Transaction) -> _Record:
        job_fields = "id", "status", "idempotency_key", "retry_of", "retry_kind"
        run_fields = "id", "job_id", "fence", "status", "error_kind"
        jobs = tx.rows(f"SELECT {', '.join(job_fields)} FROM jobs")
        runs = tx.rows(f"SELECT {', '.join(run_fields)} FROM job_runs")
        return _Record(
            {row[0]: dict(zip(job_fields, row, strict=True)) for row in jobs},
            {row[0]: dict(zip(run_fields, row, strict=True)) for row in runs},
        )

    def root(self, job_id: str) -> str:
        following = ("auto", "continue")
        while (job := self.jobs.get(job_id)) and job["retry_kind"] in following and job["retry_of"] in self.jobs:
            job_id = job["retry_of"]
        return job_id


def _of(entries: list[Entry], kind: str) -> list[Entry]:
    return [entry for entry in entries if entry["kind"] == kind]


def _pruned(entries: list[Entry]) -> set[str]:
    """Jobs that may be gone: they had ended before retention was let loose."""
    if not _of(entries, "pruning"):
        return set()
    return {job for entry in _of(entries, "ended-all") for job in entry["jobs"]}


def _lost(record: _Record, entries: list[Entry]) -> Iterator[Violation]:
    may_be_gone = _pruned(entries)
    acknowledged = [entry["job"] for entry in _of(entries, "submitted")]
    acknowledged += [job for entry in _of(entries, "grouped") for job in entry["jobs"]]
    for job_id in acknowledged:
        if job_id not in record.jobs and job_id not in may_be_gone:
            yield Violation(f"lost: job {job_id} was acknowledged and is gone")
    for entry in _of(entries, "cancelled"):
        job = record.jobs.get(entry["job"])
        if job is not None and job["status"] != "CANCELLED":
            yield Violation(f"lost: the cancel of {entry['job']} was acknowledged, and it is {job['status']}")
    keys = Counter(job["idempotency_key"] for job in record.jobs.values() if job["idempotency_key"])
    for key, count in keys.items():
        if count > 1:
            yield Violation(f"double: {count} jobs have the key {key}")
    for entry in _of(entries, "ended"):
        run = record.runs.get(entry["run"])
        if run is not None and run["status"] is None:
            yield Violation(f"lost: run {entry['run']} ended and its end is not on record")


def _doubles(record: _Record, entries: list[Entry]) -> Iterator[Violation]:
    may_be_gone = _pruned(entries)
    begun = [entry for entry in _of(entries, "begun") if entry["job"] is not None]
    for run_id, count in Counter(entry["run"] for entry in begun).items():
        if count > 1:
            yield Violation(f"double: run {run_id} was begun {count} times")
    chains: dict[str, list[str]] = {}
    for entry in begun:
        if entry["job"] in may_be_gone and entry["job"] not in record.jobs:
            continue
        run = record.runs.get(entry["run"])
        if run is None:
            yield Violation(f"double: run {entry['run']} of job {entry['job']} was begun and is not on record")
        elif run["fence"] != entry["fence"] or run["job_id"] != entry["job"]:
            yield Violation(f"double: run {entry['run']} was begun with fence {entry['fence']}, not {run['fence']}")
        else:
            chains.setdefault(record.root(entry["job"]), []).append(entry["run"])
    for root, runs in chains.items():
        for earlier in runs[:-1]:
            run = record.runs[earlier]
            if run["status"] != "CONTINUED" and (run["status"] != "FAILED" or run["error_kind"] is None):
                yield Violation(f"double: {root} was tried again although run {earlier} is {run['status']}")
    # 0 is the fence of runs that were never executed: skipped with their group.
    fences = Counter(run["fence"] for run in record.runs.values() if run["fence"])
    yield from (Violation(f"double: fence {fence} was given out twice") for fence, n in fences.items() if n > 1)


def _steps(entries: list[Entry]) -> Iterator[Violation]:
    """A step whose value a handler has seen is not called again (STEP-01)."""
    kept = set()
    for entry in entries:
        if entry["kind"] == "kept":
            kept.add((entry["chain"], entry["step"]))
        elif entry["kind"] == "called" and (entry["chain"], entry["step"]) in kept:
            yield Violation(f"double: the step {entry['step']!r} of {entry['chain']} was called after it was kept")


_LEFT_OVER = {
    "a job is RUNNING": "SELECT id FROM jobs WHERE status = 'RUNNING'",
    "a lease is held by nobody": "SELECT id FROM leases",
    "a run of an ended job is open": "SELECT r.id FROM job_runs r WHERE r.status IS NULL",
    "a run has no job": "SELECT r.id FROM job_runs r LEFT JOIN jobs j ON j.id = r.job_id WHERE j.id IS NULL",
    "a reservation is ACTIVE": "SELECT id FROM direct_reservations WHERE status = 'ACTIVE'",
    "a group did not end": "SELECT id FROM job_groups WHERE status IN ('QUEUED', 'RUNNING')",
    "a job waits though nothing hinders it": "SELECT id FROM jobs WHERE status = 'QUEUED'",
    "a worker that died is on record as alive": "SELECT id FROM workers WHERE stopped_at IS NULL AND id <> :me",
    "a job ended otherwise than its run": (
        "SELECT j.id FROM jobs j JOIN job_runs r ON r.job_id = j.id "
        "WHERE j.status <> r.status AND NOT (j.status = 'CANCELLED' AND r.error_kind = 'cancelled')"
    ),
}


def _left_over(store: PersistenceAdapter, me: str) -> Iterator[Violation]:
    for what, question in _LEFT_OVER.items():
        if what.startswith("a worker") and not store.url.startswith("sqlite"):
            continue
        params = {"me": me} if ":me" in question else {}
        records = store.read_sync(lambda tx, question=question, params=params: tx.rows(question, **params))  # type: ignore[misc]
        if records:
            yield Violation(f"broken: {what}: {records[0][0]}")


def _retries(store: PersistenceAdapter) -> Iterator[Violation]:
    """Exactly one automatic retry, or the verdict, for each FAILED job."""

    def ask(tx: Transaction) -> list[tuple[Any, ...]]:
        return tx.rows(
            "SELECT j.id, j.retried_by, j.permanently_failed, "
            "(SELECT count(*) FROM jobs r WHERE r.retry_of = j.id AND r.retry_kind = 'auto'), r.error_kind "
            "FROM jobs j JOIN job_runs r ON r.job_id = j.id WHERE j.status = 'FAILED'"
        )

    for job_id, retried_by, is_final, retries, kind in store.read_sync(ask):
        if bool(is_final) == bool(retried_by) or retries != (0 if is_final else 1):
            yield Violation(f"broken: {job_id} failed ({kind}) and has {retries} automatic retries")


_EVENTS = {"COMPLETED": "job.run.completed", "FAILED": "job.run.failed", "SKIPPED": "job.run.skipped"}


def _outbox(store: PersistenceAdapter) -> Iterator[Violation]:
    """Each run's end is in the outbox once; a cancelled one as the job's cancellation."""

    def ask(tx: Transaction) -> tuple[list[Any], list[Any], list[Any]]:
        return (
            tx.rows("SELECT j.id, j.status, r.status FROM jobs j LEFT JOIN job_runs r ON r.job_id = j.id"),
            tx.rows("SELECT job_id, event FROM deliveries WHERE job_id IS NOT NULL"),
            tx.rows("SELECT id FROM webhooks"),
        )

    jobs, deliveries, subscriptions = store.read_sync(ask)
    if not subscriptions:
        return
    sent = Counter((row[0], row[1]) for row in deliveries)
    for job_id, status, run_status in jobs:
        if status == "CANCELLED":
            event = "job.cancelled"
        elif run_status is not None and run_status != "CONTINUED":
            event = _EVENTS[run_status]
        else:
            continue
        if sent[job_id, event] != 1:
            yield Violation(f"broken: {job_id} ended {status} and {event} is in the outbox {sent[job_id, event]} times")


def _occurrences(store: PersistenceAdapter) -> Iterator[Violation]:
    """A fired due time has its one job, and a scheduled job its due time."""

    def ask(tx: Transaction) -> tuple[list[Any], list[Any]]:
        return (
            tx.rows("SELECT job_id, schedule_id FROM occurrences WHERE status = 'fired'"),
            tx.rows("SELECT id FROM jobs WHERE schedule_id IS NOT NULL AND retry_of IS NULL"),
        )

    fired, jobs = store.read_sync(ask)
    counted = Counter(row[0] for row in fired)
    for (job_id,) in jobs:
        if counted[job_id] != 1:
            yield Violation(f"broken: the scheduled job {job_id} belongs to {counted[job_id]} due times")
