"""Rerun: a chain that has ended is run again from one of its steps, as a chain of its own (STEP-06)."""

from __future__ import annotations

from holdbeat.domain import events
from holdbeat.domain.errors import Conflict, NotFound
from holdbeat.domain.job import Job
from holdbeat.domain.retry import manual_retry
from holdbeat.store.jobs.manual_retry import with_free_keys
from holdbeat.store.queue.enqueue import insert_jobs
from holdbeat.store.reads.chains import original_params, tip_of
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.reads.rows import JOB, job_of
from holdbeat.store.transaction import Transaction


def rerun_job(tx: Transaction, job_id: str, from_step: str | None = None) -> Job:
    """A new chain from the snapshot of one that has ended, however it did: with copies of the steps that were kept
    before `from_step`, or without any. The old chain stays as it is."""
    row = tx.one(f"SELECT {JOB} FROM jobs WHERE id = :id FOR UPDATE", id=tip_of(tx, job_id))
    assert row is not None
    job = job_of(tx, row)
    open_run = tx.one("SELECT id FROM job_runs WHERE job_id = :id AND status IS NULL", id=job.id)
    if not job.status.is_terminal or open_run is not None:
        raise Conflict(
            f"The chain of job {job_id} has not ended: job {job.id} is {job.status}. It can be run again then.",
            code="not_finished",
            job_id=job.id,
        )
    if not with_free_keys(tx, [job]):
        raise Conflict(
            f"Another job has the unique key {job.unique_key!r} of job {job_id}. Wait for its end, or cancel it.",
            code="duplicate",
            job_id=job.id,
        )
    names = _before(tx, job.chain_id, from_step) if from_step is not None else []
    request = manual_retry(job)
    request.root_id = None
    request.params = original_params(tx, [job.id]).get(job.id, job.params)
    made = insert_jobs(tx, [request])[0]
    _copy(tx, job.chain_id, made.id, names)
    tx.record(
        events.RETRY_CREATED,
        job_id=made.id,
        schedule_id=job.schedule_id,
        retry_of=job.id,
        reason="run again by a person" + (f" from the step {from_step}" if from_step else ""),
    )
    return load_job(tx, made.id)


def _before(tx: Transaction, root_id: str, from_step: str) -> list[str]:
    rows = tx.rows("SELECT name FROM steps WHERE root_id = :id ORDER BY kept_at, started_at, name", id=root_id)
    names = [row[0] for row in rows]
    if from_step not in names:
        raise NotFound(f"The chain of job {root_id} has kept no step {from_step!r}.", code="unknown_step")
    return names[: names.index(from_step)]


def _copy(tx: Transaction, old_id: str, new_id: str, names: list[str]) -> None:
    """Copies what the chain depended on, the named steps, and the signals that came before the last of them."""
    tx.execute(
        "INSERT INTO dependencies (job_id, number, upstream_id, is_group, name, met_at, outcome) "
        "SELECT CAST(:new AS text), number, upstream_id, is_group, name, met_at, outcome FROM dependencies "
        "WHERE job_id = :old AND met_at IS NOT NULL",
        old=old_id,
        new=new_id,
    )
    if not names:
        return
    tx.execute(
        "INSERT INTO steps (root_id, name, value, size, started_at, duration_s, run_id, kept_at) "
        "SELECT CAST(:new AS text), name, value, size, started_at, duration_s, run_id, kept_at FROM steps "
        "WHERE root_id = :old AND name IN :names",
        old=old_id,
        new=new_id,
        names=names,
    )
    tx.execute(
        "INSERT INTO signals (root_id, name, number, payload, sent_by, sent_at) "
        "SELECT CAST(:new AS text), name, number, payload, sent_by, sent_at FROM signals WHERE root_id = :old "
        "AND sent_at <= (SELECT max(kept_at) FROM steps WHERE root_id = :old AND name IN :names)",
        old=old_id,
        new=new_id,
        names=names,
    )
