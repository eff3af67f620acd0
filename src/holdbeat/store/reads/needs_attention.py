"""Work that needs a person now: jobs that failed for good, jobs that nobody can run.

Keeps reads short beside millions of jobs: only partial indexes of rare rows, and the newest part of long
ones are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdbeat.domain.clock import EPOCH
from holdbeat.domain.cron import zone_of
from holdbeat.domain.errors import Invalid
from holdbeat.domain.lease import HTTP_RESOURCE
from holdbeat.domain.schedule import Schedule
from holdbeat.store.reads.blockers import Blockers
from holdbeat.store.reads.schedules import SCHEDULES
from holdbeat.store.reads.stats import ready_jobs
from holdbeat.store.transaction import Transaction

FAILURES_READ = 5000
"""So many of the newest failures are read: most may be retried ones, or calls of endpoints."""


@dataclass(frozen=True, slots=True)
class Unserved:
    """A job type with waiting jobs that no live worker can run."""

    type: str
    resource: str
    waiting: int


@dataclass(frozen=True, slots=True)
class FailedJob:
    id: str
    type: str
    title: str
    finished_at: datetime | None


_FAILED_SINCE = (
    "FROM jobs WHERE status = 'FAILED' AND status IN ('FAILED', 'SKIPPED', 'CANCELLED') AND id >= :first "
    "ORDER BY id DESC"
)


def failed_for_good(tx: Transaction, since: datetime, limit: int = 8) -> list[FailedJob]:
    """Jobs made after an instant that failed for good, not endpoints' calls, and nobody retried, the newest first."""
    rows = tx.rows(
        "SELECT f.id, f.type, f.title, f.finished_at FROM (SELECT id, type, title, finished_at, permanently_failed, "
        f"resource, schedule_id {_FAILED_SINCE} LIMIT :most) AS f "
        "WHERE f.permanently_failed = :yes AND NOT (f.resource = :http AND f.schedule_id IS NOT NULL) "
        "AND NOT EXISTS (SELECT 1 FROM jobs r WHERE r.retry_of = f.id AND r.retry_kind = 'manual') "
        "ORDER BY f.id DESC LIMIT :limit",
        first=first_id(since),
        most=FAILURES_READ,
        yes=True,
        http=HTTP_RESOURCE,
        limit=limit,
    )
    return [FailedJob(row[0], row[1], row[2] or row[1], tx.time(row[3])) for row in rows]


def fails_too_often(tx: Transaction, since: datetime) -> bool:
    """Whether more jobs have failed since an instant than `failed_for_good` reads."""
    row = tx.one(f"SELECT id {_FAILED_SINCE} LIMIT 1 OFFSET :most", first=first_id(since), most=FAILURES_READ)
    return row is not None


def run_errors(tx: Transaction, job_ids: Sequence[str]) -> dict[str, str | None]:
    rows = tx.rows("SELECT job_id, coalesce(error, error_kind) FROM job_runs WHERE job_id IN :ids", ids=list(job_ids))
    return {row[0]: row[1] for row in rows}


def unserved(tx: Transaction) -> list[Unserved]:
    """Types with ready jobs for which there is no live worker."""
    workers = Blockers(tx).workers
    return [
        Unserved(type_, resource, int(amount))
        for resource, type_, amount in ready_jobs(tx)
        if not any(worker.can_serve(resource, type_) for worker in workers)
    ]


def failing_schedules(tx: Transaction, limit: int = 8) -> list[Schedule]:
    """Enabled schedules and endpoints whose latest runs failed, the worst first."""
    return _in_need(tx, "failure_count > 0 ORDER BY failure_count DESC, id DESC", limit)


def troubled_schedules(tx: Transaction, limit: int = 8) -> list[Schedule]:
    """Enabled schedules and endpoints that cannot be planned, such as in a zone that is gone."""
    return _in_need(tx, "trouble IS NOT NULL ORDER BY failure_count, id", limit)


def count_failing(tx: Transaction) -> dict[bool, int]:
    """How many enabled endpoints (True) and other schedules (False) have failed the last time."""
    rows = tx.rows(
        "SELECT endpoint IS NOT NULL, count(*) FROM schedules "
        f"WHERE {_are_in_need(tx)} AND failure_count > 0 GROUP BY 1"
    )
    return {bool(is_endpoint): int(count) for is_endpoint, count in rows}


def _in_need(tx: Transaction, condition: str, limit: int) -> list[Schedule]:
    return SCHEDULES.all(tx, f"WHERE {_are_in_need(tx)} AND {condition} LIMIT :limit", limit=limit)


def _are_in_need(tx: Transaction) -> str:
    """The condition of the index `schedules_in_need`, which differs by engine."""
    enabled = "enabled = 1" if tx.dialect == "sqlite" else "enabled"
    return f"{enabled} AND (failure_count > 0 OR trouble IS NOT NULL)"


def unknown_zones(tx: Transaction) -> dict[str, str]:
    """Zones of enabled cron schedules that this machine does not know, each with the reason. Reads all schedules."""
    rows = tx.rows(
        "SELECT DISTINCT timezone FROM schedules WHERE enabled = :yes AND cron IS NOT NULL ORDER BY timezone", yes=True
    )
    unknown = {}
    for (name,) in rows:
        try:
            zone_of(name)
        except Invalid as error:
            unknown[str(name)] = error.detail
    return unknown


def next_schedules(tx: Transaction, limit: int = 6) -> list[Schedule]:
    """The schedules and endpoints that will fire next."""
    soon = "WHERE wake_at IS NOT NULL AND trouble IS NULL ORDER BY wake_at, id LIMIT :limit"
    return [schedule for schedule in SCHEDULES.all(tx, soon, limit=limit) if schedule.next_run_at is not None]


def first_id(at: datetime) -> str:
    """An id that sorts before all that were made from that moment on."""
    digits = f"{max(0, int((at - EPOCH) / timedelta(milliseconds=1))):012x}"
    return f"{digits[:8]}-{digits[8:]}"
