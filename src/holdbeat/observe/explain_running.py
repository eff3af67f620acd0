"""How a Job that runs is doing, and how one that has ended came to its end, why, and what followed.

Guards the difference between the job's end and the run's: a cancelled job whose handler has not ended says so.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdbeat.domain.clock import iso
from holdbeat.domain.job import Job, JobStatus
from holdbeat.domain.run import NEVER_RETRIED_KINDS, ErrorKind
from holdbeat.observe.wording import answer, listed, moment, reason, sentence, span, standing, wait_words
from holdbeat.store.reads.chains import chain_of, last_step, manual_retry_of, status_and_delay
from holdbeat.store.reads.jobs import load_jobs
from holdbeat.store.transaction import Transaction


def explain_running(tx: Transaction, job: Job) -> dict[str, Any]:
    started_at = job.started_at or job.created_at
    ran = span((tx.now - started_at).total_seconds())
    worker = f" on {job.worker_id}" if job.worker_id else ""
    reasons = [
        reason(
            "running",
            f"It has been running{worker} since {moment(started_at, tx.now)}.",
            since=started_at,
            worker_id=job.worker_id,
            run_id=job.run.id if job.run else None,
            fence=job.run.fence if job.run else None,
        )
    ]
    reasons += lease_reasons(tx, job)
    summary = f"Job {job.id} has been running{worker} for {ran}."
    if job.progress is not None:
        detail = _progress(job.progress)
        reasons.append(
            reason("progress", detail, fraction=job.progress.get("fraction"), message=job.progress.get("message"))
        )
        summary += f" {detail}"
    steps = step_reasons(tx, job)
    reasons += steps
    summary = " ".join([summary, *(entry["detail"] for entry in steps)])
    if job.timeout_s is not None:
        reasons.append(_deadline(tx, job))
    troubles = [entry["detail"] for entry in reasons if entry["code"] in ("overdue", "lease_expired", "no_lease")]
    return answer(job.status, " ".join([summary, *troubles]), reasons)


def step_reasons(tx: Transaction, job: Job) -> list[dict[str, Any]]:
    """The steps in which the handler is, or was when it failed, and the last one that the chain has kept."""
    reasons = []
    if job.open_steps:
        is_running = job.status is JobStatus.RUNNING
        since = "since" if is_running else "begun at"
        names = listed(f"{step.name!r} {since} {moment(step.started_at, tx.now)}" for step in job.open_steps)
        steps = "step" if len(job.open_steps) == 1 else "steps"
        is_in = "It has been in" if is_running else "It did not complete"
        facts = [{"name": step.name, "started_at": iso(step.started_at)} for step in job.open_steps]
        first = job.open_steps[0]
        detail = f"{is_in} the {steps} {names}."
        reasons.append(reason("open_step", detail, step=first.name, since=first.started_at, steps=facts))
    last = last_step(tx, job.chain_id)
    if last is not None:
        name, kept_at = last
        detail = f"The last step done is {name!r}, at {moment(kept_at, tx.now)}."
        reasons.append(reason("last_step", detail, step=name, at=kept_at))
    return reasons


def lease_reasons(tx: Transaction, job: Job) -> list[dict[str, Any]]:
    """A sentence on the lease: how long it lasts, when the worker last beat, and whether that is late."""
    if job.lease_expires_at is None or job.heartbeat_at is None:
        detail = "No lease backs it: its worker is gone, and recovery will end the run and decide what follows."
        return [reason("no_lease", detail)]
    facts = {"worker_id": job.worker_id, "expires_at": job.lease_expires_at, "heartbeat_at": job.heartbeat_at}
    beat = f"the last heartbeat came at {moment(job.heartbeat_at, tx.now)}"
    if job.lease_expires_at <= tx.now:
        return [
            reason(
                "lease_expired",
                f"Its lease ran out at {moment(job.lease_expires_at, tx.now)}; {beat}. Unless {job.worker_id} beats "
                "again, recovery will end the run.",
                **facts,
            )
        ]
    return [reason("lease", f"Its lease lasts until {moment(job.lease_expires_at, tx.now)}; {beat}.", **facts)]


def _progress(progress: dict[str, Any]) -> str:
    fraction, message = progress.get("fraction"), progress.get("message")
    done = f"It is at {fraction:.0%}" if isinstance(fraction, int | float) else "It reports"
    return f"{done}: {' '.join(str(message).split())}." if message else f"{done}."


def _deadline(tx: Transaction, job: Job) -> dict[str, Any]:
    deadline = (job.started_at or job.created_at) + timedelta(seconds=job.timeout_s or 0)
    if deadline > tx.now:
        return reason("timeout", f"It may run until {moment(deadline, tx.now)}.", deadline=deadline)
    return reason(
        "overdue",
        f"Its time was over at {moment(deadline, tx.now)}; its handler was told to end and has not yet.",
        deadline=deadline,
    )


_KINDS = {
    ErrorKind.ERROR: "its handler raised an error",
    ErrorKind.EXIT: "its process ended with an exit code other than 0",
    ErrorKind.TIMEOUT: "its time ran out",
    ErrorKind.CRASH: "its worker process died",
    ErrorKind.LOST: "its worker fell silent and the lease ran out",
    ErrorKind.INTERRUPTED: "it was interrupted",
    ErrorKind.CANCELLED: "it was cancelled",
    ErrorKind.REJECTED: "it failed permanently",
    ErrorKind.THROTTLED: "the service that it called asked to be called later",
}


def explain_ended(tx: Transaction, job: Job) -> dict[str, Any]:
    """The explanation of a job that is COMPLETED, FAILED, SKIPPED, CANCELLED or CONTINUED."""
    match job.status:
        case JobStatus.COMPLETED:
            reasons = [_completed(tx, job)]
        case JobStatus.FAILED:
            reasons = [_failed(tx, job), _what_followed(tx, job), *step_reasons(tx, job)]
        case JobStatus.SKIPPED:
            why = (job.run.error if job.run else None) or job.cancel_reason or "no reason was given"
            detail = f"It was skipped at {_end(tx, job)}: {sentence(why)}"
            reasons = [reason("skipped", detail, why=why, at=job.finished_at), *_broken_upstreams(job)]
        case JobStatus.CONTINUED:
            reasons = [_continued(tx, job)]
        case _:
            reasons = _cancelled(tx, job)
    summary = " ".join(entry["detail"] for entry in reasons)
    return answer(job.status, summary.replace("It ", f"Job {job.id} ", 1), reasons)


def _end(tx: Transaction, job: Job) -> str:
    return moment(job.finished_at, tx.now) if job.finished_at else "an unknown time"


def _took(job: Job) -> str:
    run = job.run
    if run is None or run.finished_at is None or run.worker_id is None:
        return ""
    return f" after {span((run.finished_at - run.started_at).total_seconds())} on {run.worker_id}"


def _continued(tx: Transaction, job: Job) -> dict[str, Any]:
    """The waits for which the handler ended this run, and the job in which it goes on."""
    following = load_jobs(tx, [job.continued_by]) if job.continued_by else []
    waits = (following[0].waits or []) if following else []
    is_waiting = bool(following) and following[0].waits_for is not None
    words = wait_words(tx, waits, are_over=not is_waiting)
    if is_waiting:
        then = f"It goes on as job {job.continued_by}."
    elif following and following[0].started_at is None and following[0].status.is_terminal:
        why = f" ({following[0].cancel_reason})" if following[0].cancel_reason else ""
        ended = f"{following[0].status.lower()} at {_end(tx, following[0])}{why}"
        then = f"It did not go on: job {job.continued_by}, which waited, was {ended}."
    else:
        then = f"The wait is over, and it went on as job {job.continued_by}."
    detail = f"It ended at {_end(tx, job)} because its handler {words}. {then}"
    return reason("continued", detail, job_id=job.continued_by, at=job.finished_at, waits=waits)


def _completed(tx: Transaction, job: Job) -> dict[str, Any]:
    return reason(
        "completed",
        f"It completed at {_end(tx, job)}{_took(job)}.",
        at=job.finished_at,
        worker_id=job.run.worker_id if job.run else None,
        run_id=job.run.id if job.run else None,
    )


def _failed(tx: Transaction, job: Job) -> dict[str, Any]:
    run = job.run
    kind = run.error_kind if run else None
    why = _KINDS[kind] if kind else "nothing is recorded about the cause"
    error = f" ({sentence(run.error)[:500].rstrip('.')})" if run and run.error else ""
    return reason(
        "failed",
        f"It failed at {_end(tx, job)}{_took(job)} because {why}{error}.",
        at=job.finished_at,
        error_kind=kind,
        error=run.error if run else None,
        exit_code=run.exit_code if run else None,
        run_id=run.id if run else None,
        worker_id=run.worker_id if run else None,
    )


def _what_followed(tx: Transaction, job: Job) -> dict[str, Any]:
    if job.retried_by is not None:
        status, not_before = status_and_delay(tx, job.retried_by) or ("gone", None)
        when = ""
        if status == JobStatus.QUEUED and not_before is not None and not_before > tx.now:
            when = f" and may start at {moment(not_before, tx.now)}"
        return reason(
            "retried",
            f"It {'is' if status in ('QUEUED', 'RUNNING') else 'was'} tried again as job {job.retried_by}, which "
            f"{standing(status)}{when}.",
            job_id=job.retried_by,
            status=status,
            not_before=not_before,
        )
    kind = job.run.error_kind if job.run else None
    most = job.retry_policy.max_attempts
    if not job.permanently_failed:
        return reason("undecided", "Whether it is tried again is not decided yet; recovery will decide it.")
    if kind in NEVER_RETRIED_KINDS:
        detail = f"It is not tried again by itself: a failure of the kind {kind} never is."
    elif most == 0:
        detail = "It is not tried again by itself: it has no automatic retries (max_attempts is 0)."
    else:
        spent = "its only retry is" if most == 1 else f"all {most} retries are"
        detail = f"It is not tried again by itself: {spent} used up."
    return reason("permanently_failed", detail, max_attempts=most, error_kind=kind)


def _cancelled(tx: Transaction, job: Job) -> list[dict[str, Any]]:
    at = job.cancel_requested_at or job.finished_at
    why = job.cancel_reason or "no reason was given"
    when = moment(at, tx.now) if at else "an unknown time"
    run = job.run
    never = " It never ran." if run is None else ""
    reasons = [
        reason("cancelled", f"It was cancelled at {when}: {sentence(why)}{never}", at=at, why=why, ran=run is not None)
    ]
    reasons += _broken_upstreams(job)
    if job.lease_expires_at is not None:
        grace_s = job.cancel_grace_s
        if grace_s is None or at is None:
            kill = "it is never killed"
        else:
            kill = f"a process is killed at {moment(at + timedelta(seconds=grace_s), tx.now)}, other handlers cannot be"
        reasons.append(
            reason(
                "still_running",
                f"Its handler has not ended yet on {job.worker_id} and still holds its slot; {kill}.",
                worker_id=job.worker_id,
                run_id=run.id if run else None,
                cancel_grace_s=grace_s,
            )
        )
        reasons += lease_reasons(tx, job)
    elif run is not None and run.finished_at is not None:
        detail = f"Its handler ended at {moment(run.finished_at, tx.now)}."
        reasons.append(reason("run_ended", detail, at=run.finished_at, run_id=run.id))
    return reasons


def _broken_upstreams(job: Job) -> list[dict[str, Any]]:
    """The upstreams that did not complete, where that ended the job."""
    if job.cancel_reason is None or not job.cancel_reason.startswith("upstream "):
        return []
    broken = [edge for edge in job.after if edge.outcome not in (None, "COMPLETED")]
    if not broken:
        return []
    names = [
        f"{'group' if edge.is_group else 'job'} {edge.upstream_id}, which {standing(edge.outcome)}" for edge in broken
    ]
    ids = [{"group_id" if edge.is_group else "job_id": edge.upstream_id} for edge in broken]
    return [reason("upstream", f"It depended on {listed(names)}.", upstreams=ids)]


def chain_reasons(tx: Transaction, job: Job) -> list[dict[str, Any]]:
    """The chain that the job belongs to, if it has more than one link, and whose manual retry it is."""
    reasons = []
    links = chain_of(tx, job.id)
    if len(links) > 1:
        place = next(number for number, link in enumerate(links, 1) if link["job_id"] == job.id)
        detail = (
            f"It is job {place} of {len(links)} so far in the chain of job {links[0]['job_id']}; the newest is job "
            f"{links[-1]['job_id']}, which {standing(links[-1]['status'])}."
        )
        reasons.append(reason("chain", detail, jobs=links))
    if job.parent_id is not None:
        detached = " It is detached: it goes on if that is cancelled." if job.is_detached else ""
        reasons.append(reason("parent", f"The handler of job {job.parent_id} made it.{detached}", job_id=job.parent_id))
    original = manual_retry_of(tx, links[0]["job_id"])
    if original is not None:
        reasons.append(reason("manual_retry", f"Somebody retried job {original} with it.", job_id=original))
    return reasons
