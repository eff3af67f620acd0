"""Manual retry: a person asks for a Job to be tried again.

Guards RET-04: always allowed for what failed, was skipped or was cancelled, and has really ended; refused for what
was completed or is unfinished.

A rerun runs a chain that has ended again from one of its steps, as a chain of its own (STEP-06).
"""

from __future__ import annotations

from collections.abc import Sequence

from holdbeat.domain import events
from holdbeat.domain.errors import Conflict
from holdbeat.domain.job import SHELL, Hold, Job, JobStatus, NewJob
from holdbeat.domain.retry import manual_retry
from holdbeat.domain.run import RunStatus
from holdbeat.store.durable.steps import drop_steps, split_steps
from holdbeat.store.queue.enqueue import insert_jobs
from holdbeat.store.queue.unique_keys import holders, lock_keys
from holdbeat.store.reads.chains import original_params, tip_of
from holdbeat.store.reads.jobs import load_job, locked_job, locked_jobs
from holdbeat.store.reads.rows import JOBS
from holdbeat.store.transaction import Transaction


def retry_job(tx: Transaction, job_id: str, *, is_fresh: bool = False, from_step: str | None = None) -> Job:
    """A new Job from the snapshot of this one, with the params of the first of its chain: at the end of its priority,
    without delay, outside the group.

    It keeps the chain's steps, unless it is to start afresh or from a step: then that step and the later ones are
    dropped (STEP-06). For a CONTINUED job the newest job of its chain is retried.
    """
    job = locked_job(tx, job_id)
    if job is None:
        raise JOBS.unknown(job_id)
    if job.status is JobStatus.CONTINUED:
        return retry_job(tx, tip_of(tx, job_id), is_fresh=is_fresh, from_step=from_step)
    # Read after the lock: a settle that was under way has ended by now.
    run = tx.one("SELECT status FROM job_runs WHERE job_id = :id", id=job_id)
    _refuse_unless_ended(job, run is not None, RunStatus(run[0]) if run and run[0] else None)
    if is_fresh or from_step is not None:
        drop_steps(tx, job.chain_id, from_step)
    _refuse_taken_key(tx, job, job_id)
    return load_job(tx, retry_jobs(tx, [job])[0].id)


def with_free_keys(tx: Transaction, jobs: Sequence[Job]) -> list[Job]:
    """Of these jobs those whose unique key nobody has, the first of each key; nobody can take them meanwhile."""
    keys = [job.unique_key for job in jobs if job.unique_key is not None]
    if not keys:
        return list(jobs)
    lock_keys(tx, keys)
    taken_keys = set(holders(tx, keys))
    free = []
    for job in jobs:
        if job.unique_key is None or job.unique_key not in taken_keys:
            free.append(job)
        if job.unique_key is not None:
            taken_keys.add(job.unique_key)
    return free


def _refuse_taken_key(tx: Transaction, job: Job, named: str) -> None:
    if not with_free_keys(tx, [job]):
        raise Conflict(
            f"Another job has the unique key {job.unique_key!r} of job {named}. Wait for its end, or cancel it.",
            code="duplicate",
            job_id=job.id,
        )


def is_own_shell_job(tx: Transaction, job_id: str) -> bool:
    """Whether this is a shell job that was made without a template."""
    row = tx.one("SELECT type, template_id FROM jobs WHERE id = :id", id=job_id)
    return row is not None and row[0] == SHELL and row[1] is None


def retry_jobs(tx: Transaction, jobs: Sequence[Job]) -> list[Job]:
    """Makes the retries of jobs that the caller has found fit for it."""
    originals = original_params(tx, [job.id for job in jobs if job.retry_kind in ("auto", "continue")])
    requests = [manual_retry(job) for job in jobs]
    for job, request in zip(jobs, requests, strict=True):
        request.params = originals.get(job.id, job.params)
    _wait_for_upstreams(tx, requests)
    retries = insert_jobs(tx, requests)
    for job, retry in zip(jobs, retries, strict=True):
        tx.record(
            events.RETRY_CREATED,
            job_id=retry.id,
            schedule_id=job.schedule_id,
            retry_of=job.id,
            reason="asked for by a person",
        )
    return retries


def _wait_for_upstreams(tx: Transaction, requests: Sequence[NewJob]) -> None:
    """Lets a retry wait for what its chain depends on and has not ended yet."""
    dependents = [request for request in requests if request.on_upstream is not None]
    if not dependents:
        return
    roots = sorted({request.root_id for request in dependents if request.root_id})
    # The transaction that ends an upstream holds this lock when it looks for the waiting jobs.
    tx.rows("SELECT id FROM jobs WHERE id IN :ids ORDER BY id FOR UPDATE", ids=roots)
    rows = tx.rows("SELECT DISTINCT job_id FROM dependencies WHERE job_id IN :ids AND met_at IS NULL", ids=roots)
    blocked = {row[0] for row in rows}
    for request in dependents:
        if request.root_id in blocked:
            request.hold = Hold.BLOCKED


def _refuse_unless_ended(job: Job, ran: bool, outcome: RunStatus | None) -> None:
    if job.status is JobStatus.COMPLETED or outcome is RunStatus.COMPLETED:
        raise Conflict(
            f"Job {job.id} was COMPLETED; there is nothing to retry. To do it once more, rerun it (`holdbeat rerun`).",
            code="already_completed",
            job_id=job.id,
        )
    if not job.status.is_terminal or (ran and outcome is None):
        what = "was cancelled, but its handler still runs" if job.status.is_terminal else f"is {job.status}"
        raise Conflict(f"Job {job.id} {what}; it can be retried once it has ended.", code="not_finished", job_id=job.id)


def rerun_job(tx: Transaction, job_id: str, from_step: str | None = None) -> Job:
    """A new chain from the snapshot of one that has ended, however it did: with copies of the steps that were kept
    before `from_step`, or without any. The old chain stays as it is."""
    (job,) = locked_jobs(tx, [tip_of(tx, job_id)])
    open_run = tx.one("SELECT id FROM job_runs WHERE job_id = :id AND status IS NULL", id=job.id)
    if not job.status.is_terminal or open_run is not None:
        raise Conflict(
            f"The chain of job {job_id} has not ended: job {job.id} is {job.status}. It can be run again then.",
            code="not_finished",
            job_id=job.id,
        )
    _refuse_taken_key(tx, job, job_id)
    names = split_steps(tx, job.chain_id, from_step)[0] if from_step is not None else []
    request = manual_retry(job)
    request.root_id = None
    request.params = original_params(tx, [job.id]).get(job.id, job.params)
    rerun = insert_jobs(tx, [request])[0]
    _copy(tx, job.chain_id, rerun.id, names)
    tx.record(
        events.RETRY_CREATED,
        job_id=rerun.id,
        schedule_id=job.schedule_id,
        retry_of=job.id,
        reason="run again by a person" + (f" from the step {from_step}" if from_step else ""),
    )
    return load_job(tx, rerun.id)


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
