"""Repairs of jobs and groups that stand still although nobody executes them.

Guards REC-02: whatever a crash or a hand left behind, the job ends in the state that its run proves, with the retry,
the verdict, the group's step and the webhook that belong to it; and none of them twice.
"""

from __future__ import annotations

from dataclasses import replace

from holdbeat.domain import events
from holdbeat.domain.clock import iso
from holdbeat.domain.job import Job, JobStatus
from holdbeat.domain.params import dumps
from holdbeat.domain.run import ErrorKind, JobRun, Outcome, RunStatus
from holdbeat.store.dependencies.consequences import follow
from holdbeat.store.jobs.end_runs import (
    Ending,
    Failure,
    apply_consequences,
    decide_failures,
    end_runs,
    lock_groups_and_schedules,
)
from holdbeat.store.reads.jobs import locked_job
from holdbeat.store.reads.rows import RUNS
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.outbox import Outbox


def recover_job(tx: Transaction, job_id: str) -> bool:
    """Ends a job that is RUNNING without a lease, or the open run of a CANCELLED one.

    Without a run, a FAILED one is made; an open run ends FAILED; from a run that has ended the job takes its status.
    """
    job = _locked(tx, job_id)
    if job is None or job.status not in (JobStatus.RUNNING, JobStatus.CANCELLED) or _is_leased(tx, job_id):
        return False
    run = _run_of_job(tx, job_id)
    if job.status is JobStatus.CANCELLED and (run is None or run.status is not None):
        return False
    worker_id = run.worker_id if run else None
    tx.record(events.ZOMBIE_FOUND, job_id=job_id, run_id=run.id if run else None, worker_id=worker_id, lease="none")
    error = f"Crash recovery: the job was {job.status} without a lease; {_last_seen(tx, worker_id)}"
    action = close_execution(tx, job, ErrorKind.CRASH, error, worker_id)
    tx.record(events.RECOVERY_ACTED, job_id=job_id, worker_id=worker_id, action=action)
    return True


def close_execution(tx: Transaction, job: Job, kind: ErrorKind, error: str, worker_id: str | None) -> str:
    """Ends a job, which the caller has locked and freed of its lease, as its run demands. Says what was done."""
    run = _run_of_job(tx, job.id)
    if run is not None and run.status is not None:
        return _adopt(tx, job, run)
    run_id = run.id if run is not None else _make_run(tx, job, worker_id)
    if job.status in (JobStatus.RUNNING, JobStatus.CANCELLED):
        outcome = Outcome.failed(kind, error)
        links = (job.webhook_url, job.group_id, job.schedule_id)
        ending = Ending(
            run_id, worker_id, outcome, job.id, job.status, job.cancel_reason, *links, job, is_awaited=job.is_awaited
        )
        end_runs(tx, [ending])
        return "its run was closed"
    # The job's end was written by hand, and the run was left open: the job stands, the run cannot stay open.
    _close_open_run(tx, run_id, kind, error)
    outbox = Outbox(tx)
    apply_consequences(tx, [job], outbox)
    outbox.write()
    return f"its run was closed; the job was {job.status} already"


def decide_job(tx: Transaction, job_id: str) -> bool:
    """Gives a FAILED job the retry or the verdict that a crash kept from it."""
    job = _locked(tx, job_id)
    if job is None or job.status is not JobStatus.FAILED or job.retried_by is not None or job.permanently_failed:
        return False
    outbox = Outbox(tx)
    run = _run_of_job(tx, job_id)
    if run is not None and run.status is None and not _is_leased(tx, job_id):
        run = replace(run, error_kind=ErrorKind.CRASH)
        _close_open_run(tx, run.id, ErrorKind.CRASH, "Crash recovery: the job was FAILED and its run was still open")
    _tell_once(tx, job, "job.run.failed", outbox)
    _decide(tx, job, run.error_kind if run else None, outbox)
    apply_consequences(tx, [job], outbox)
    outbox.write()
    tx.record(
        events.RECOVERY_ACTED,
        job_id=job_id,
        run_id=run.id if run else None,
        action=f"its retry is {job.retried_by}" if job.retried_by else "it failed for good",
    )
    return True


def step_group(tx: Transaction, group_id: str) -> bool:
    """Lets a group take the step that it should have taken: open a gate, or end."""
    lock_groups_and_schedules(tx, [group_id], [])
    before = _picture(tx, group_id)
    outbox = Outbox(tx)
    follow(tx, {}, [group_id], (), outbox)
    outbox.write()
    if _picture(tx, group_id) == before:
        return False
    tx.record(events.RECOVERY_ACTED, group_id=group_id, action="the group was moved on")
    return True


def _adopt(tx: Transaction, job: Job, run: JobRun) -> str:
    """Lets a job take the end that its run has, with all that follows from it."""
    outbox = Outbox(tx)
    if job.status is JobStatus.RUNNING:
        assert run.status is not None
        job.status = JobStatus(run.status.value)
        job.finished_at = run.finished_at or tx.now
        tx.execute(
            "UPDATE jobs SET status = :status, finished_at = :finished_at WHERE id = :id",
            id=job.id,
            status=job.status,
            finished_at=job.finished_at,
        )
        _tell_once(tx, job, f"job.run.{run.status.lower()}", outbox)
        if run.status is RunStatus.FAILED:
            _decide(tx, job, run.error_kind, outbox)
    elif job.status is JobStatus.CANCELLED:
        tx.execute("UPDATE jobs SET run_ended_at = :at WHERE id = :id", id=job.id, at=run.finished_at)
    apply_consequences(tx, [job], outbox)
    outbox.write()
    tx.wake(Topic.SLOTS)
    return f"its run had ended: the job is {job.status}"


def _decide(tx: Transaction, job: Job, kind: ErrorKind | None, outbox: Outbox) -> None:
    """The retry or the verdict; a retry that is there already is only linked."""
    retry = tx.one("SELECT id FROM jobs WHERE retry_of = :id AND retry_kind = 'auto'", id=job.id)
    if retry is None:
        decide_failures(tx, [Failure(job, kind or ErrorKind.ERROR)], outbox)
        return
    job.retried_by = retry[0]
    tx.execute("UPDATE jobs SET retried_by = :retry WHERE id = :id", id=job.id, retry=retry[0])


def _tell_once(tx: Transaction, job: Job, event: str, outbox: Outbox) -> None:
    """Adds the delivery of a state that was written by hand; one that exists is not repeated."""
    delivery = tx.one("SELECT 1 FROM deliveries WHERE job_id = :id AND event = :event LIMIT 1", id=job.id, event=event)
    if delivery is None:
        outbox.tell_job(event, job.id, job.webhook_url)


def _locked(tx: Transaction, job_id: str) -> Job | None:
    ids = tx.one("SELECT group_id, schedule_id FROM jobs WHERE id = :id", id=job_id)
    if ids is None:
        return None
    lock_groups_and_schedules(tx, [ids[0]], [ids[1]])
    return locked_job(tx, job_id)


def _is_leased(tx: Transaction, job_id: str) -> bool:
    return tx.one("SELECT 1 FROM leases WHERE job_id = :id", id=job_id) is not None


def _run_of_job(tx: Transaction, job_id: str) -> JobRun | None:
    return RUNS.first(tx, "WHERE job_id = :id", id=job_id)


def _make_run(tx: Transaction, job: Job, worker_id: str | None) -> str:
    """The record of an execution that left none."""
    run_id = tx.new_id()
    tx.insert(
        "job_runs",
        ("id", "job_id", "type", "resource", "template_id", "params_snapshot", "worker_id", "fence", "started_at"),
        [
            (
                run_id, job.id, job.type, job.resource, job.template_id, dumps(job.params), worker_id,
                tx.next_fences(1), job.started_at or tx.now,
            )
        ],
    )  # fmt: skip
    return run_id


def _close_open_run(tx: Transaction, run_id: str, kind: ErrorKind, error: str) -> None:
    tx.execute(
        "UPDATE job_runs SET finished_at = :now, status = 'FAILED', error = :error, error_kind = :kind WHERE id = :id",
        id=run_id,
        now=tx.now,
        error=error,
        kind=kind,
    )


def _last_seen(tx: Transaction, worker_id: str | None) -> str:
    if worker_id is None:
        return "its worker is not known"
    row = tx.one("SELECT heartbeat_at FROM workers WHERE id = :id", id=worker_id)
    if row is None:
        return f"its worker {worker_id} left no heartbeat"
    return f"the last heartbeat of its worker {worker_id} was at {iso(tx.instant(row[0]))}"


def _picture(tx: Transaction, group_id: str) -> list[object]:
    return [
        *tx.rows("SELECT status FROM job_groups WHERE id = :id", id=group_id),
        *tx.rows("SELECT id, status, hold FROM jobs WHERE group_id = :id ORDER BY id", id=group_id),
    ]
