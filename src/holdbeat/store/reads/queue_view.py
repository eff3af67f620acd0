"""The queue for lists: QUEUED Jobs in plain INV-004 order, including delayed and gated ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdbeat.domain.bounds import check_instant
from holdbeat.domain.clock import iso
from holdbeat.domain.job import Job
from holdbeat.domain.submission import check_resource
from holdbeat.store import meta
from holdbeat.store.reads.blockers import Blocker, Blockers
from holdbeat.store.reads.jobs import complete
from holdbeat.store.reads.pagination import Cursors, Page, check_limit
from holdbeat.store.reads.rows import JOBS
from holdbeat.store.transaction import Row, Transaction


@dataclass(slots=True)
class QueueEntry:
    job: Job
    blocked_by: tuple[Blocker, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    priority: int
    position: int
    created_at: Any
    id: str


def queue(
    tx: Transaction, resource: str | None = None, *, limit: int | None = None, cursor: str | None = None
) -> Page[QueueEntry]:
    """A page of the queue by (priority DESC, position, created_at, id), each job with what keeps it waiting.

    Jobs that are moved between two pages may be seen at their old or their new place; all others once, even if their
    priority was renumbered meanwhile.
    """
    count = check_limit(limit)
    cursors = Cursors("queue", {"resource": resource})
    if resource is not None:
        check_resource(resource)
    key = cursors.read(cursor, int, int, str, str, int)
    place = None if key is None else _place(tx, key)
    rows = _rest_of_priority(tx, resource, place, count + 1) if place else []
    if len(rows) <= count:
        rows += _priorities_below(tx, resource, place, count + 1 - len(rows))
    jobs = [JOBS.read(tx, row) for row in rows[:count]]
    complete(tx, jobs)
    blockers = Blockers(tx)
    following = None
    if len(rows) > count:
        last = jobs[-1]
        following = cursors.write(
            last.priority, last.position, iso(last.created_at), last.id, renumberings(tx, last.priority)
        )
    return Page([QueueEntry(job, blockers.with_workers(job)) for job in jobs], following)


def _place(tx: Transaction, key: list[Any]) -> _Place:
    """Where the page before ended, in today's numbers."""
    priority, position, created_at, job_id, counted = key
    if renumberings(tx, priority) != counted:
        row = tx.one("SELECT position FROM jobs WHERE id = :id AND priority = :priority", id=job_id, priority=priority)
        position = position if row is None else row[0]
    return _Place(priority, position, check_instant(created_at, "cursor"), job_id)


_FROM = f"SELECT {JOBS.columns} FROM jobs INDEXED BY jobs_queue WHERE status = 'QUEUED' AND priority >= 0"


def _rest_of_priority(tx: Transaction, resource: str | None, place: _Place, count: int) -> list[Row]:
    condition, params = _resource(resource)
    return tx.rows(
        f"{_FROM} AND priority = :priority AND (position, created_at, id) > (:position, :created_at, :id) {condition}"
        "ORDER BY position, created_at, id LIMIT :count",
        priority=place.priority,
        position=place.position,
        created_at=place.created_at,
        id=place.id,
        count=count,
        **params,
    )


def _priorities_below(tx: Transaction, resource: str | None, place: _Place | None, count: int) -> list[Row]:
    condition, params = _resource(resource)
    return tx.rows(
        f"{_FROM} AND priority < :priority {condition}ORDER BY priority DESC, position, created_at, id LIMIT :count",
        priority=101 if place is None else place.priority,
        count=count,
        **params,
    )


def _resource(resource: str | None) -> tuple[str, dict[str, Any]]:
    return ("", {}) if resource is None else ("AND resource = :resource ", {"resource": resource})


def renumbering_key(priority: int) -> str:
    """Under which key of the meta table the renumberings of a priority are counted."""
    return f"renumbered:{priority}"


def renumberings(tx: Transaction, priority: int) -> int:
    """How often the priority was renumbered: a cursor with an older count has outdated positions."""
    return int(meta.get(tx, renumbering_key(priority)) or 0)
