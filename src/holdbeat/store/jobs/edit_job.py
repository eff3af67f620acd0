"""Changing a Job that still waits.

Guards INV-001: priority, params, not_before and labels can change while the job is QUEUED; afterwards an attempt is
refused and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.bounds import check_instant, check_whole_number
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import Conflict, Invalid
from holdbeat.domain.job import Hold, Job, JobStatus
from holdbeat.domain.params import check_json, check_labels, dumps
from holdbeat.schemas.field_bounds import PRIORITY_MAX
from holdbeat.store.durable.continuing import move_sleep
from holdbeat.store.queue.ageing import counted_from
from holdbeat.store.queue.job_types import Catalogue
from holdbeat.store.queue.labels import replace_labels
from holdbeat.store.reads.chains import tip_of
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.reads.rows import JOBS
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, Transaction

CHANGEABLE = ("priority", "params", "not_before", "labels")
TOLD_ON_CHANGE = ("priority", "not_before", "labels")
"""Fields whose values are recorded with an edit. Params may be long, or secret."""


def change_job(tx: Transaction, job_id: str, changes: Mapping[str, Any]) -> Job:
    """Writes the changed fields of a QUEUED job and returns it; any other job is a Conflict (`not_queued`).

    Another priority puts the job at its end. Params replace the old ones whole and must fit the type's schema.
    `not_before` (None: at once) delays or frees the job; a closed gate stays closed. A chain that sleeps wakes up. For
    a CONTINUED job the job that continues its chain is edited.
    """
    for name in changes:
        if name not in CHANGEABLE:
            raise Invalid(
                f"{name} of a job cannot be changed; {', '.join(CHANGEABLE)} can.",
                code="unknown_field",
                field=name,
            )
    row = _locked(tx, job_id)
    job = JOBS.read(tx, row)
    if job.status is JobStatus.CONTINUED:
        job_id = tip_of(tx, job_id)
        row = _locked(tx, job_id)
        job = JOBS.read(tx, row)
    if job.status is not JobStatus.QUEUED:
        raise Conflict(
            f"Job {job_id} is {job.status}; only a QUEUED job can be changed. Submit a new one instead.",
            code="not_queued",
            job_id=job_id,
        )
    written: dict[str, Any] = {}
    if "params" in changes:
        written["params"] = dumps(_checked_params(tx, job, changes["params"]))
    if "labels" in changes:
        labels = changes["labels"]
        checked = check_labels({} if labels is None else labels)
        written["labels"] = dumps(checked)
        replace_labels(tx, job_id, checked)
    _change_turn(tx, job, changes, row[-2], row[-1], written)
    if written:
        tx.execute(
            f"UPDATE jobs SET {', '.join(f'{name} = :{name}' for name in written)} WHERE id = :id",
            id=job_id,
            **written,
        )
        edited = load_job(tx, job_id)
        tx.record(
            events.JOB_CHANGED,
            job_id=job_id,
            group_id=job.group_id,
            schedule_id=job.schedule_id,
            changed=sorted(changes),
            values=events.differences(job, edited, TOLD_ON_CHANGE),
        )
        tx.wake(Topic.READY, Topic.DELAYED)
    return load_job(tx, job_id)


def _locked(tx: Transaction, job_id: str) -> Row:
    row = tx.one(f"SELECT {JOBS.columns}, effective_priority, ages_at FROM jobs WHERE id = :id FOR UPDATE", id=job_id)
    if row is None:
        raise JOBS.unknown(job_id)
    return row


def _checked_params(tx: Transaction, job: Job, params: Any) -> dict[str, Any]:
    if not isinstance(params, dict):
        raise Invalid("params must be an object.", code="invalid_params", field="params")
    check_json(params, field="params")
    Catalogue(tx).check_params(job.type, params)
    return params


def _change_turn(
    tx: Transaction, job: Job, changes: Mapping[str, Any], effective: int, ages_at: Any, written: dict[str, Any]
) -> None:
    """Changes when the job's turn comes: priority with place, delay, and the raise it has waited for."""
    priority = job.priority
    was_highest = effective >= PRIORITY_MAX
    if changes.get("priority") is not None:
        priority = check_whole_number(changes["priority"], "priority", 0, PRIORITY_MAX)
    elif "priority" in changes:
        raise Invalid("priority must be a whole number from 0 to 100.", code="out_of_range", field="priority")
    hold = job.hold
    if "not_before" in changes:
        text = changes["not_before"]
        not_before = None if text is None else check_instant(text, "not_before")
        if not_before is not None and job.expires_at is not None and job.expires_at <= not_before:
            raise Invalid(
                f"Job {job.id} expires at {iso(job.expires_at)}, before it may start then: not_before must lie before "
                "that.",
                code="expires_too_early",
                field="not_before",
            )
        written["not_before"] = not_before
        if job.waits_for is not None:
            written["waits"] = dumps(move_sleep(tx, job, not_before or tx.now))
        if hold in (Hold.READY, Hold.DELAYED):
            hold = Hold.DELAYED if not_before is not None and not_before > tx.now else Hold.READY
            written["hold"] = int(hold)
    if priority != job.priority:
        written["priority"] = priority
        written["position"] = tx.next_positions({priority: 1})[priority][0]
        # The periods that it has waited for stay with it.
        written["effective_priority"] = effective = min(PRIORITY_MAX, priority + effective - job.priority)
    if hold is not Hold.READY or effective >= PRIORITY_MAX:
        written["ages_at"] = None
    elif job.hold is not Hold.READY or (ages_at is None and was_highest):
        written["ages_at"] = counted_from(tx, effective, hold)
    if "ages_at" in written and written["ages_at"] is None and ages_at is None:
        del written["ages_at"]
