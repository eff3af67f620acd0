"""Reading Jobs whole: with run, lease, progress and manual retries, as they are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from holdbeat.domain.clock import from_iso
from holdbeat.domain.job import Job, JobStatus
from holdbeat.domain.run import JobRun
from holdbeat.domain.steps import OpenStep
from holdbeat.store.reads.rows import JOBS, RUNS, short_run_columns, short_run_of
from holdbeat.store.reads.upstreams import edges_of
from holdbeat.store.transaction import Transaction


def load_jobs(tx: Transaction, ids: Sequence[str], *, result_bytes: int | None = None) -> list[Job]:
    """The Jobs with these ids, whole, in that order, without unknown ones and results larger than `result_bytes`."""
    if not ids:
        return []
    jobs = {job.id: job for job in JOBS.all(tx, "WHERE id IN :ids", ids=ids)}
    complete(tx, list(jobs.values()), result_bytes=result_bytes)
    return [jobs[job_id] for job_id in ids if job_id in jobs]


def load_job(tx: Transaction, job_id: str) -> Job:
    """One Job, whole."""
    jobs = load_jobs(tx, [job_id])
    if not jobs:
        raise JOBS.unknown(job_id)
    return jobs[0]


def locked_jobs(tx: Transaction, ids: Sequence[str]) -> list[Job]:
    """The rows of these Jobs, locked in the order in which everyone locks them."""
    return JOBS.all(tx, "WHERE id IN :ids ORDER BY id FOR UPDATE", ids=ids)


def locked_job(tx: Transaction, job_id: str) -> Job | None:
    """The row of one Job, locked; None if it is gone."""
    return JOBS.first(tx, "WHERE id = :id FOR UPDATE", id=job_id)


def locked_unfinished(tx: Transaction, ids: Sequence[str]) -> list[Job]:
    """Of these Jobs those that are unfinished, locked."""
    unfinished: list[Job] = []
    while ids:
        locked = locked_jobs(tx, ids)
        unfinished += [job for job in locked if not job.status.is_terminal]
        # A job that failed while we waited for its lock has been replaced by its retry.
        ids = [job.retried_by for job in locked if job.retried_by is not None]
    return unfinished


def complete(tx: Transaction, jobs: Sequence[Job], *, result_bytes: int | None = None) -> None:
    """Fills in run, lease, progress and manual retries of Jobs that were read without them."""
    if not jobs:
        return
    ids = [job.id for job in jobs]
    by_id = {job.id: job for job in jobs}
    is_whole = result_bytes is None
    columns = RUNS.columns if result_bytes is None else short_run_columns(tx.dialect, "", result_bytes)
    for row in tx.rows(f"SELECT {columns} FROM job_runs WHERE job_id IN :ids", ids=ids):
        run = RUNS.read(tx, row) if is_whole else short_run_of(tx, row)
        by_id[run.job_id].run = run
    runs = {job.run.id: job for job in jobs if job.run is not None}
    if runs:
        for job_id, worker_id, heartbeat_at, expires_at in tx.rows(
            "SELECT job_id, worker_id, heartbeat_at, expires_at FROM leases WHERE id IN :ids", ids=list(runs)
        ):
            job = by_id[job_id]
            job.worker_id = worker_id
            job.heartbeat_at = tx.time(heartbeat_at)
            job.lease_expires_at = tx.time(expires_at)
        steps: dict[str, str] = {}
        for run_id, fraction, message, open_steps in tx.rows(
            "SELECT run_id, fraction, message, steps FROM progress WHERE run_id IN :ids", ids=list(runs)
        ):
            if open_steps is None or fraction is not None or message is not None:
                runs[run_id].progress = {"fraction": fraction, "message": message}
            if open_steps is not None and runs[run_id].status in (JobStatus.RUNNING, JobStatus.FAILED):
                steps[run_id] = open_steps
        if steps:
            _fill_open_steps(tx, runs, steps)
    for retry_of, retry_id in tx.rows(
        "SELECT retry_of, id FROM jobs WHERE retry_kind = 'manual' AND retry_of IN :ids ORDER BY id", ids=ids
    ):
        job = by_id[retry_of]
        job.manual_retries = (*job.manual_retries, retry_id)
    dependents = [job for job in jobs if job.on_upstream is not None]
    if dependents:
        edges = edges_of(tx, [job.chain_id for job in dependents])
        for job in dependents:
            job.after = tuple(edges.get(job.chain_id, ()))


def _fill_open_steps(tx: Transaction, jobs: Mapping[str, Job], steps: Mapping[str, str]) -> None:
    """Fills in the steps in which runs are. What was noted is a little old: a step that is kept by now has ended."""
    kept = tx.rows(
        "SELECT root_id, name FROM steps WHERE root_id IN :ids", ids=sorted({jobs[run_id].chain_id for run_id in steps})
    )
    ended = {(root_id, name) for root_id, name in kept}
    for run_id, text in steps.items():
        job = jobs[run_id]
        entries = json.loads(text) if isinstance(text, str) else text
        job.open_steps = tuple(
            OpenStep(entry["name"], from_iso(entry["started_at"]))
            for entry in entries
            if (job.chain_id, entry["name"]) not in ended
        )


def load_run_and_type(tx: Transaction, run_id: str) -> tuple[JobRun, str | None]:
    """One JobRun by its id, with the type of its Job where it is recorded."""
    run = RUNS.get(tx, run_id)
    row = tx.one("SELECT type FROM job_runs WHERE id = :id", id=run_id)
    return run, (str(row[0]) if row and row[0] else None)


def has_jobs(tx: Transaction) -> bool:
    """Whether the store holds any job."""
    return tx.one("SELECT id FROM jobs LIMIT 1") is not None
