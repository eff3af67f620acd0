"""Explain: the answer to "why", for jobs, direct requests and schedules.

One implementation for the API, the command line and the dashboard, so that all of them say the same words. Each is a
verb that only reads: `await store.read(explain_job, job_id)`.
"""

from __future__ import annotations

from typing import Any

from holdbeat.domain.job import Job, JobStatus
from holdbeat.observe.explain_reservation import explain_reservation
from holdbeat.observe.explain_running import chain_reasons, explain_ended, explain_running
from holdbeat.observe.explain_schedule import explain_schedule
from holdbeat.observe.explain_waiting import explain_waiting
from holdbeat.observe.wording import listed, reason, standing
from holdbeat.store.reads.chains import tip_of
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.transaction import Transaction

__all__ = ["explain_job", "explain_reservation", "explain_schedule"]


def explain_job(tx: Transaction, job_id: str) -> dict[str, Any]:
    """Why a job is where it is: {state, summary, reasons: [{code, detail, …}], estimated_start}.

    `state` is the job's status. Of a waiting job the reasons are all that stands in its way, the nearest first; of a
    running one how it is doing; of one that has ended its cause and what followed. The chain of retries comes last.
    """
    job = load_job(tx, job_id)
    explanation = _explain_one(tx, job)
    if job.retried_by is not None:
        _add_newest(tx, job, explanation)
    _add_manual_retries(tx, job, explanation)
    explanation["reasons"] += chain_reasons(tx, job)
    return explanation


def _explain_one(tx: Transaction, job: Job) -> dict[str, Any]:
    match job.status:
        case JobStatus.QUEUED:
            return explain_waiting(tx, job)
        case JobStatus.RUNNING:
            return explain_running(tx, job)
        case _:
            return explain_ended(tx, job)


def _add_newest(tx: Transaction, job: Job, explanation: dict[str, Any]) -> None:
    """How the chain stands now, where the job that followed is not its newest: people have the id of the first."""
    tip_id = tip_of(tx, job.id)
    if tip_id in (job.id, job.retried_by):
        return
    tip = load_job(tx, tip_id)
    has_ended = tip.status.is_terminal
    detail = f"The chain {'has ended' if has_ended else 'goes on'}: {_explain_one(tx, tip)['summary']}"
    explanation["summary"] += f" {detail}"
    explanation["reasons"].append(reason("newest", detail, job_id=tip.id, status=tip.status))


def _add_manual_retries(tx: Transaction, job: Job, explanation: dict[str, Any]) -> None:
    """What became of the chain when somebody retried its last job, whichever of its jobs is asked about."""
    tip = load_job(tx, tip_of(tx, job.id)) if job.retried_by is not None else job
    if not tip.manual_retries:
        return
    newest = tip
    while newest.manual_retries:
        newest = load_job(tx, tip_of(tx, newest.manual_retries[-1]))
    subject = "It" if tip is job else f"Job {tip.id}"
    how = standing(newest.status)
    is_only = tip.manual_retries == (newest.id,)
    rest = f", which {how}." if is_only else f"; the newest job is {newest.id}, which {how}."
    detail = f"{subject} was tried again by hand as {listed(f'job {each}' for each in tip.manual_retries)}{rest}"
    explanation["summary"] += f" {detail}"
    explanation["reasons"].append(reason("manual_retries", detail, job_ids=list(tip.manual_retries)))
