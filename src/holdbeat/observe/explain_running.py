"""How a Job that runs is doing: who runs it, how fresh its lease is, what it says of itself, what is wrong."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdbeat.domain.job import Job
from holdbeat.observe.wording import answer, moment, reason, span
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
    last = last_step_reasons(tx, job)
    reasons += last
    summary = " ".join([summary, *(entry["detail"] for entry in last)])
    if job.timeout_s is not None:
        reasons.append(_deadline(tx, job))
    troubles = [entry["detail"] for entry in reasons if entry["code"] in ("overdue", "lease_expired", "no_lease")]
    return answer(job.status, " ".join([summary, *troubles]), reasons)


def last_step_reasons(tx: Transaction, job: Job) -> list[dict[str, Any]]:
    """The last step that the chain has kept, if it has kept any."""
    step = last_step(tx, job.chain_id)
    if step is None:
        return []
    name, kept_at = step
    return [
        reason("last_step", f"The last step done is {name!r}, at {moment(kept_at, tx.now)}.", step=name, at=kept_at)
    ]


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
