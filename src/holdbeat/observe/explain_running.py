"""How a Job that runs is doing: who runs it, how fresh its lease is, what it says of itself, what is wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdbeat.domain.clock import iso
from holdbeat.domain.job import Job, JobStatus
from holdbeat.observe.wording import answer, listed, moment, reason, span
from holdbeat.store.reads.steps import last_step
from holdbeat.store.transaction import Transaction


def explain_running(tx: Transaction, job: Job) -> dict[str, Any]:
    """The explanation of a RUNNING job."""
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
        names = listed(f"{step.name!r} since {moment(step.started_at, tx.now)}" for step in job.open_steps)
        steps = "step" if len(job.open_steps) == 1 else "steps"
        is_in = "It is in" if job.status is JobStatus.RUNNING else "It did not get to the end of"
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
    """What the lease says: how long it lasts, when the worker last beat, and whether that is late."""
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
