"""All that follows from the end of a run, in the transaction that ends it (RET-03).

Settle, cancel and recovery come through here, so there is one order of consequences: the run and the job, the
retry or the verdict, the group's step, the schedule's plan, the outbox, the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdbeat.domain import events
from holdbeat.domain.clock import iso
from holdbeat.domain.job import Job, JobEvent, JobStatus, transition
from holdbeat.domain.params import dumps
from holdbeat.domain.retry import RetryController, automatic_retry
from holdbeat.domain.run import COUNTED_KINDS, ErrorKind, Outcome, RunStatus
from holdbeat.domain.webhook import JOB_PERMANENTLY_FAILED, RUN_COMPLETED
from holdbeat.store.dependencies.consequences import follow
from holdbeat.store.durable.continuing import Continued, continue_chains
from holdbeat.store.limits.throttles import Throttled, throttle
from holdbeat.store.queue.enqueue import insert_jobs
from holdbeat.store.queue.unique_keys import give_up_taken_keys
from holdbeat.store.reads.chains import failures_in_chain
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, Transaction
from holdbeat.store.webhooks.outbox import Outbox

_EVENT_OF = {
    RunStatus.COMPLETED: JobEvent.COMPLETE,
    RunStatus.FAILED: JobEvent.FAIL,
    RunStatus.SKIPPED: JobEvent.SKIP,
    RunStatus.CONTINUED: JobEvent.CONTINUE,
}


_TOLD_AS = {status: f"job.run.{status.lower()}" for status in RunStatus}
_AS_PLANNED = dumps({"status": RunStatus.COMPLETED})


@dataclass(slots=True)
class Ending:
    """One run that has ended: how its execution went, and as much of its Job (locked) as every end needs."""

    run_id: str
    worker_id: str | None
    outcome: Outcome
    job_id: str
    status: JobStatus
    cancel_reason: str | None
    webhook_url: str | None
    group_id: str | None
    schedule_id: str | None
    job: Job | None = None
    """All of it; needed where the execution failed, or where a schedule made the job."""
    is_stored: bool = False
    """Whether the job's own row says COMPLETED already."""
    is_awaited: bool = False
    """Whether other work depends on the end of the chain."""


class Failure(NamedTuple):
    """A job that has just FAILED, and how."""

    job: Job
    kind: ErrorKind
    retry_after_s: float | None = None
    is_preempted: bool = False


def lock_groups_and_schedules(
    tx: Transaction, group_ids: Iterable[str | None], schedule_ids: Iterable[str | None]
) -> None:
    """Locks the groups and schedules that an ending will touch, before any job.

    Everyone takes locks in this order (groups, schedules, jobs), so that nobody waits in a circle; and two
    members that end at the same time see each other.
    """
    if tx.dialect == "sqlite":
        return
    groups = sorted({group for group in group_ids if group})
    schedules = sorted({schedule for schedule in schedule_ids if schedule})
    if groups:
        tx.execute("SELECT id FROM job_groups WHERE id IN :ids ORDER BY id FOR UPDATE", ids=groups)
    if schedules:
        tx.execute("SELECT id FROM schedules WHERE id IN :ids ORDER BY id FOR UPDATE", ids=schedules)


def end_runs(
    tx: Transaction, endings: Sequence[Ending], outbox: Outbox | None = None, *, leases_are_gone: bool = False
) -> None:
    """Closes runs and writes everything that follows.

    A job that was cancelled in the meantime stays CANCELLED; its run ends FAILED(`cancelled`), whatever the handler
    said, and tells nobody a second time (CAN-04).
    """
    if not endings:
        return
    outbox = outbox or Outbox(tx)
    ends = _ends_of(tx, endings, outbox)
    tx.execute(
        "UPDATE job_runs SET finished_at = :now, status = e.status, exit_code = e.exit_code, error = e.error, "
        "error_kind = e.error_kind, artifacts = e.artifacts FROM rows(:ends; id text, status text, exit_code int, "
        "error text, error_kind text, artifacts json) AS e WHERE job_runs.id = e.id",
        now=tx.now,
        ends=ends.runs,
    )
    for ended_as, ids in ends.jobs.items():
        tx.execute(
            "UPDATE jobs SET status = :status, finished_at = :now WHERE id IN :ids",
            status=ended_as,
            now=tx.now,
            ids=ids,
        )
    if ends.cancelled:
        tx.execute("UPDATE jobs SET run_ended_at = :now WHERE id IN :ids", now=tx.now, ids=ends.cancelled)
    if not leases_are_gone:
        tx.execute("DELETE FROM leases WHERE id IN :ids", ids=[ending.run_id for ending in endings])
    if ends.failed:
        decide_failures(tx, ends.failed, outbox)
    if ends.continued:
        continue_chains(tx, ends.continued)
    scheduled = [ending.job for ending in endings if ending.job is not None and ending.schedule_id]
    # Without a retry or a continuation the chain has ended.
    awaited = {
        ending.job_id: JobStatus.COMPLETED if ending.job is None else ending.job.status
        for ending in endings
        if ending.is_awaited and (ending.job is None or ending.job.retried_by is None)
    }
    follow(tx, awaited, {ending.group_id for ending in endings}, scheduled, outbox)
    outbox.write()
    tx.wake(Topic.SLOTS)


@dataclass(slots=True)
class _Ends:
    """The effects of several endings, sorted by what has to be written."""

    runs: list[Row]
    """Of each run: id, status, exit_code, error, error_kind, artifacts."""
    jobs: dict[JobStatus, list[str]]
    """The ids of the jobs that get a status."""
    cancelled: list[str]
    """The ids of the jobs that were cancelled before their run ended."""
    failed: list[Failure]
    continued: list[Continued]


def _ends_of(tx: Transaction, endings: Sequence[Ending], outbox: Outbox) -> _Ends:
    """Decides what each ending comes to, records its event and tells the outbox."""
    is_followed = bool(outbox.subscribers())
    ends = _Ends([], {}, [], [], [])
    now = tx.now
    record = tx.events.append
    for ending in endings:
        job_id, run_id, outcome = ending.job_id, ending.run_id, ending.outcome
        if ending.status is JobStatus.CANCELLED:
            reason = ending.cancel_reason or "cancelled"
            outcome = Outcome.failed(ErrorKind.CANCELLED, reason, exit_code=outcome.exit_code)
            ends.cancelled.append(job_id)
        else:
            if ending.status is JobStatus.RUNNING and outcome.status is RunStatus.COMPLETED:
                # What nearly every job comes to, without three looks at tables.
                ended_as, event = JobStatus.COMPLETED, RUN_COMPLETED
            else:
                ended_as, event = transition(ending.status, _EVENT_OF[outcome.status]), _TOLD_AS[outcome.status]
            if not ending.is_stored:
                ends.jobs.setdefault(ended_as, []).append(job_id)
            if (ending.webhook_url or is_followed) and outcome.status is not RunStatus.CONTINUED:
                outbox.tell_job(event, job_id, ending.webhook_url)
            if ending.job is not None:
                ending.job.status, ending.job.finished_at = ended_as, now
            if outcome.status is RunStatus.FAILED:
                assert ending.job is not None
                kind = outcome.error_kind or ErrorKind.ERROR
                ends.failed.append(Failure(ending.job, kind, outcome.retry_after_s, outcome.is_preempted))
            elif outcome.status is RunStatus.CONTINUED:
                assert ending.job is not None
                ends.continued.append((ending.job, run_id, outcome.waits))
        status, error_kind = outcome.status, outcome.error_kind
        ends.runs.append((run_id, status, outcome.exit_code, outcome.error, error_kind, outcome.artifacts_text()))
        data = _AS_PLANNED
        if status is not RunStatus.COMPLETED or error_kind is not None:
            data = dumps({"status": status} | ({"error_kind": error_kind} if error_kind else {}))
        record((events.RUN_ENDED, now, job_id, run_id, ending.worker_id, ending.group_id, ending.schedule_id, data))
    return ends


def decide_failures(tx: Transaction, failed: Sequence[Failure], outbox: Outbox) -> None:
    """Gives every FAILED job its retry or its verdict."""
    retries = []
    verdicts = []
    throttled = []
    for job, kind, retry_after_s, is_preempted in failed:
        counted = _counted_failures(tx, job, kind)
        verdict = RetryController.decide(job, kind, counted, tx.now, retry_after_s, is_preempted=is_preempted)
        if retry_after_s is not None:
            throttled.append(Throttled(job.resource, job.type, job.partition, retry_after_s, job.id))
        if verdict.retry:
            retries.append((job, automatic_retry(job, verdict.not_before), verdict.reason))
        else:
            job.permanently_failed = True
            verdicts.append(job.id)
            tx.record(events.RETRIES_EXHAUSTED, job_id=job.id, group_id=job.group_id, reason=verdict.reason)
            if job.retry_policy.max_attempts > 0:
                outbox.tell_job(JOB_PERMANENTLY_FAILED, job.id, job.webhook_url)
    give_up_taken_keys(tx, [request for _, request, _ in retries])
    inserted = insert_jobs(tx, [request for _, request, _ in retries])
    for (job, request, reason), retry in zip(retries, inserted, strict=True):
        job.retried_by = retry.id
        tx.record(
            events.RETRY_CREATED,
            job_id=retry.id,
            group_id=job.group_id,
            schedule_id=job.schedule_id,
            retry_of=job.id,
            reason=reason,
            not_before=iso(request.not_before) if request.not_before else None,
        )
    if verdicts:
        tx.execute("UPDATE jobs SET permanently_failed = :yes WHERE id IN :ids", ids=verdicts, yes=True)
    if retries:
        tx.execute(
            "UPDATE jobs SET retried_by = r.retried_by FROM rows(:links; id text, retried_by text) AS r "
            "WHERE jobs.id = r.id",
            links=[(job.id, job.retried_by) for job, _, _ in retries],
        )
    if throttled:
        throttle(tx, throttled)


def _counted_failures(tx: Transaction, job: Job, kind: ErrorKind) -> int:
    """Failures that count, from this job back to the root of its chain; no further than matters."""
    if job.retry_of is None:
        return 1 if kind in COUNTED_KINDS else 0
    return failures_in_chain(tx, job.id, sorted(COUNTED_KINDS), job.retry_policy.max_attempts + 1)


def apply_consequences(tx: Transaction, jobs: Sequence[Job], outbox: Outbox, *, stopped: Iterable[str] = ()) -> None:
    """Writes the consequences of these ends for groups, schedules, dependents, and children of stopped chains."""
    awaited = {job.id: job.status for job in jobs if job.is_awaited and job.retried_by is None}
    scheduled = [job for job in jobs if job.schedule_id]
    follow(tx, awaited, {job.group_id for job in jobs}, scheduled, outbox, stopped=stopped)
