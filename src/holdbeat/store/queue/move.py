"""Moving Jobs within their priority.

Guards DEC-005: a move changes one row, unless the gap at its new place is used up; then the whole priority, QUEUED
and RUNNING, is renumbered in the same transaction. Order among those that did not move stays as it was.

The line of a priority is its QUEUED and RUNNING jobs: a running one may leave its place to an automatic retry, so
nobody may be put on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from holdbeat.domain import events
from holdbeat.domain.errors import Conflict, Invalid
from holdbeat.domain.job import Job, JobStatus
from holdbeat.domain.position import POSITION_MAX, between, permuted, renumbered
from holdbeat.store import meta
from holdbeat.store.reads.jobs import load_job, load_jobs, locked_jobs
from holdbeat.store.reads.queue_view import renumbering_key
from holdbeat.store.reads.rows import JOBS
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction

Key = tuple[int, Any, str]
"""(position, created_at, id): where a job stands in its priority."""

_ROWS_AT_ONCE = 20_000
"""Renumbering a million jobs takes many statements, so that none exceeds its time limit."""

_QUEUED = "FROM jobs INDEXED BY jobs_queue WHERE status = 'QUEUED' AND priority >= 0 AND priority = :priority"
_RUNNING = "FROM jobs INDEXED BY jobs_running WHERE status = 'RUNNING' AND priority = :priority"


def move_job(
    tx: Transaction,
    job_id: str,
    *,
    before: str | None = None,
    after: str | None = None,
    to: str | int | None = None,
) -> Job:
    """Puts a QUEUED job before or after another one of its priority, or `to` top, bottom or an index (0-based).

    A job that is not QUEUED, or stands in another priority, is a Conflict. The index counts the QUEUED jobs of the
    priority; one outside of them is Invalid. A job that stands there already is left alone.
    """
    if sum(target is not None for target in (before, after, to)) != 1:
        raise Invalid("Say where to: give exactly one of before, after and to.", code="bad_move", field="to")
    row = tx.one("SELECT priority FROM jobs WHERE id = :id", id=job_id)
    if row is None:
        raise JOBS.unknown(job_id)
    tx.lock_pools([f"order:{row[0]}"])
    job = _locked(tx, [job_id])[0]
    if job.priority != row[0]:
        tx.lock_pools([f"order:{job.priority}"])
    if to is not None:
        _move_to(tx, job, to)
    else:
        beside = after if before is None else before
        if not isinstance(beside, str) or not beside:
            name = "after" if before is None else "before"
            raise Invalid(f"{name} must be the id of a job.", code="invalid_id", field=name)
        _move_beside(tx, job, beside, ahead=before is not None)
    # Where partitions take turns, one that was moved to the top goes first all the same.
    tx.execute("UPDATE jobs SET put_first = :first WHERE id = :id", id=job_id, first=to in ("top", 0))
    return load_job(tx, job_id)


def reorder(tx: Transaction, job_ids: Sequence[str]) -> list[Job]:
    """Lets the listed QUEUED jobs of one priority stand in this order, on the places that they hold together."""
    if not job_ids:
        raise Invalid("List the jobs in the order they shall stand.", code="empty_order", field="job_ids")
    if len(set(job_ids)) != len(job_ids):
        raise Invalid("A job is listed twice; list each once.", code="listed_twice", field="job_ids")
    priorities = {int(row[0]) for row in tx.rows("SELECT DISTINCT priority FROM jobs WHERE id IN :ids", ids=job_ids)}
    tx.lock_pools(f"order:{priority}" for priority in priorities)
    jobs = _locked(tx, job_ids)
    priority = jobs[0].priority
    for job in jobs:
        if job.priority != priority:
            _refuse_other_priority(job, jobs[0])
    places = sorted(_key(job) for job in jobs)
    shared = tx.rows(
        f"SELECT position {_QUEUED} AND position IN :places", priority=priority, places=[p[0] for p in places]
    )
    if len(shared) != len({place[0] for place in places}):
        # Two jobs share a position, so numbers alone cannot order them.
        line = _line(tx, priority)
        _renumber(tx, priority, line, renumbered(len(line)))
        new_places = dict(zip([key[2] for key in line], renumbered(len(line)), strict=True))
        places = [(new_places[key[2]], key[1], key[2]) for key in places]
    moved = permuted([place[0] for place in places], job_ids, [place[2] for place in places])
    _write(tx, moved)
    for job_id, position in moved.items():
        tx.record(events.JOB_MOVED, job_id=job_id, position=position)
    if moved:
        tx.wake(Topic.READY)
    return load_jobs(tx, job_ids)


def _move_to(tx: Transaction, job: Job, to: str | int) -> None:
    if to == "top":
        _move_to_top(tx, job)
    elif to == "bottom":
        _move_to_bottom(tx, job)
    elif isinstance(to, int) and not isinstance(to, bool):
        _move_to_index(tx, job, to)
    else:
        raise Invalid("to must be top, bottom or an index.", code="bad_move", field="to")


def _move_to_top(tx: Transaction, job: Job) -> None:
    first = _neighbour(tx, job, None, forward=True)
    (running,) = tx.rows(f"SELECT min(position) {_RUNNING}", priority=job.priority)[0]
    # Ahead of what runs, too: its retry would otherwise come in front of the one that was put first.
    if (first is None or _key(job) < first) and (running is None or job.position < running):
        return
    lowest = min(place for place in (first[0] if first else None, running) if place is not None)
    _put(tx, job, between(None, lowest), lambda line: 0)


def _move_to_bottom(tx: Transaction, job: Job) -> None:
    last = _neighbour(tx, job, None, forward=False)
    if last is None or _key(job) > last:
        return
    # From the counter, as a new job's would be: nothing that is enqueued later can get the same place.
    position = tx.next_positions({job.priority: 1})[job.priority][0]
    _put(tx, job, position if last[0] < position < POSITION_MAX else None, len)


def _move_to_index(tx: Transaction, job: Job, index: int) -> None:
    counted = tx.one(f"SELECT count(*) {_QUEUED}", priority=job.priority)
    count = int(counted[0]) if counted else 0
    if not 0 <= index < count:
        raise Invalid(
            f"to must be an index from 0 to {count - 1}: so many jobs are queued with priority {job.priority}.",
            code="bad_index",
            field="to",
        )
    if index == 0:
        _move_to_top(tx, job)
    elif index == count - 1:
        _move_to_bottom(tx, job)
    else:
        row = tx.one(
            f"SELECT position, created_at, id {_QUEUED} AND id <> :id "
            "ORDER BY position, created_at, id LIMIT 1 OFFSET :index",
            priority=job.priority,
            id=job.id,
            index=index,
        )
        assert row is not None
        _insert_beside(tx, job, _key_of(tx, row), ahead=True)


def _move_beside(tx: Transaction, job: Job, other_id: str, *, ahead: bool) -> None:
    if other_id == job.id:
        raise Invalid(
            "A job cannot stand beside itself; name another one.",
            code="bad_move",
            field="before" if ahead else "after",
        )
    neighbour = _locked(tx, [other_id])[0]
    if neighbour.priority != job.priority:
        _refuse_other_priority(neighbour, job)
    _insert_beside(tx, job, _key(neighbour), ahead=ahead)


def _insert_beside(tx: Transaction, job: Job, neighbour: Key, *, ahead: bool) -> None:
    far = _neighbour(tx, job, neighbour, forward=not ahead)
    low, high = (far, neighbour) if ahead else (neighbour, far)
    if (low is None or low < _key(job)) and (high is None or _key(job) < high):
        return
    if high is None:
        _move_to_bottom(tx, job)
        return
    floor, ceiling = low[0] if low else None, high[0]
    # A running job between the two keeps its place to itself.
    if ahead:
        (running,) = tx.rows(
            f"SELECT max(position) {_RUNNING} AND position <= :place", priority=job.priority, place=ceiling
        )[0]
        floor = running if floor is None else max(floor, floor if running is None else running)
    else:
        (running,) = tx.rows(
            f"SELECT min(position) {_RUNNING} AND position >= :place", priority=job.priority, place=floor
        )[0]
        ceiling = ceiling if running is None else min(ceiling, running)
    _put(
        tx,
        job,
        between(floor, ceiling),
        lambda line: [key[2] for key in line].index(neighbour[2]) + (0 if ahead else 1),
    )


def _put(tx: Transaction, job: Job, position: int | None, place_in: Callable[[list[Key]], int]) -> None:
    """Writes the new place. Where there is none left, the priority is renumbered with the job at `place_in` the
    line of all others."""
    if position is None:
        line = [key for key in _line(tx, job.priority) if key[2] != job.id]
        index = place_in(line)
        line.insert(index, _key(job))
        places = renumbered(len(line))
        _renumber(tx, job.priority, line, places)
        position = places[index]
    else:
        _write(tx, {job.id: position})
    tx.record(events.JOB_MOVED, job_id=job.id, group_id=job.group_id, schedule_id=job.schedule_id, position=position)
    tx.wake(Topic.READY)


def _renumber(tx: Transaction, priority: int, line: Sequence[Key], places: Sequence[int]) -> None:
    _write(tx, {key[2]: place for key, place in zip(line, places, strict=True) if place != key[0]})
    meta.add(tx, renumbering_key(priority), 1)


def _line(tx: Transaction, priority: int) -> list[Key]:
    """The whole line of a priority, locked. Locks are taken by id, as others that lock several jobs do."""
    rows = tx.rows(
        "SELECT position, created_at, id FROM jobs WHERE status IN ('QUEUED', 'RUNNING') AND priority = :priority "
        "ORDER BY id FOR UPDATE",
        priority=priority,
    )
    return sorted(_key_of(tx, row) for row in rows)


def _neighbour(tx: Transaction, job: Job, of: Key | None, *, forward: bool) -> Key | None:
    """The QUEUED job next to a place, this one left out; without a place the first (or last) of the priority."""
    order = "ORDER BY position, created_at, id" if forward else ("ORDER BY position DESC, created_at DESC, id DESC")
    params: dict[str, Any] = {"priority": job.priority, "id": job.id}
    beyond = ""
    if of is not None:
        beyond = f"AND (position, created_at, id) {'>' if forward else '<'} (:position, :created_at, :key_id) "
        params |= {"position": of[0], "created_at": of[1], "key_id": of[2]}
    row = tx.one(f"SELECT position, created_at, id {_QUEUED} AND id <> :id {beyond}{order} LIMIT 1", **params)
    return None if row is None else _key_of(tx, row)


def _write(tx: Transaction, positions: dict[str, int]) -> None:
    places = list(positions.items())
    for start in range(0, len(places), _ROWS_AT_ONCE):
        tx.execute(
            "UPDATE jobs SET position = p.position FROM rows(:places; id text, position int) AS p WHERE jobs.id = p.id",
            places=places[start : start + _ROWS_AT_ONCE],
        )


def _locked(tx: Transaction, job_ids: Sequence[str]) -> list[Job]:
    """These jobs in the order asked for, locked; all of them QUEUED."""
    jobs = {job.id: job for job in locked_jobs(tx, job_ids)}
    for job_id in job_ids:
        if job_id not in jobs:
            raise JOBS.unknown(job_id)
        if jobs[job_id].status is not JobStatus.QUEUED:
            raise Conflict(
                f"Job {job_id} is {jobs[job_id].status}; only QUEUED jobs have a place to move.",
                code="not_queued",
                job_id=job_id,
            )
    return [jobs[job_id] for job_id in job_ids]


def _key(job: Job) -> Key:
    return job.position, job.created_at, job.id


def _key_of(tx: Transaction, row: Sequence[Any]) -> Key:
    return row[0], tx.time(row[1]), row[2]


def _refuse_other_priority(job: Job, reference: Job) -> NoReturn:
    raise Conflict(
        f"Job {job.id} has priority {job.priority}, not {reference.priority} as {reference.id} has. Order is kept "
        "within one priority: change the priority first.",
        code="other_priority",
        job_id=job.id,
    )
