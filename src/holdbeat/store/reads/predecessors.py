"""The job that another one waits for: an earlier member of its group, or the job before it of its schedule."""

from __future__ import annotations

from dataclasses import dataclass

from holdbeat.domain.job import Job
from holdbeat.store.transaction import Row, Transaction


@dataclass(frozen=True, slots=True)
class Predecessor:
    job_id: str
    status: str
    has_lease: bool
    sequence: int | None = None


def unfinished_member(tx: Transaction, job: Job) -> Predecessor | None:
    """The first member of the job's sequential group that must end before it."""
    row = tx.one(
        "SELECT j.id, j.status, l.id, j.sequence FROM jobs j LEFT JOIN leases l ON l.job_id = j.id "
        "WHERE j.group_id = :group_id AND j.sequence < :sequence AND j.retried_by IS NULL "
        "AND (j.status IN ('QUEUED', 'RUNNING') OR l.id IS NOT NULL "
        "OR (j.status = 'FAILED' AND NOT j.permanently_failed)) ORDER BY j.sequence, j.id LIMIT 1",
        group_id=job.group_id,
        sequence=job.sequence,
    )
    return None if row is None else _predecessor(row, row[3])


def unfinished_job_of_schedule(tx: Transaction, job: Job) -> Predecessor | None:
    """The first job of the same schedule that must end before it."""
    row = tx.one(
        "SELECT j.id, j.status, l.id FROM jobs j LEFT JOIN leases l ON l.job_id = j.id "
        "WHERE j.schedule_id = :schedule_id AND j.id < :id AND (j.status IN ('QUEUED', 'RUNNING') OR l.id IS NOT NULL) "
        "ORDER BY j.id LIMIT 1",
        schedule_id=job.schedule_id,
        id=job.id,
    )
    return None if row is None else _predecessor(row)


def _predecessor(row: Row, sequence: int | None = None) -> Predecessor:
    return Predecessor(row[0], row[1], row[2] is not None, sequence)
