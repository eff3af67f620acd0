"""Candidates: the jobs that a claim will start, in the order of INV-004 over all lanes."""

from __future__ import annotations

from typing import NamedTuple

from holdbeat.domain.limit import Capacity
from holdbeat.store.reads.rows import JOB, JOB_FIELDS
from holdbeat.store.running.lanes import Lane
from holdbeat.store.running.vacancy import FreeSlots
from holdbeat.store.transaction import Row, Transaction


class Candidate(NamedTuple):
    """A job to start: its row of JOB, its slot, and its fence where the database gave one out already."""

    row: Row
    slot: int
    fence: int | None


class Chosen(NamedTuple):
    candidates: list[Candidate]
    is_running: bool
    """Whether the statement that found them wrote RUNNING, too."""


class _Share(NamedTuple):
    """As many jobs of a lane as could be started there."""

    resource: str
    type: str
    places: int


_NO_ONE = Chosen([], is_running=False)
_ID, _POSITION, _CREATED_AT = map(JOB_FIELDS.index, ("id", "position", "created_at"))

_FIRST_OF_LANE = (
    "SELECT {columns} FROM jobs INDEXED BY jobs_ready "
    "WHERE status = 'QUEUED' AND hold = 0 AND resource = {lane}resource AND type = {lane}type "
    "ORDER BY effective_priority DESC, position, created_at, id LIMIT {lane}places"
)
_PLACE = "effective_priority, position, created_at, id, resource, type"
_READ_LANE = _FIRST_OF_LANE.format(columns=JOB, lane=":")
_READ_PLACES = _FIRST_OF_LANE.format(columns=f"{_PLACE}, NULL", lane=":")
_LOCK_PLACES = (
    "SELECT c.*, nextval('fences') FROM rows(:lanes; resource text, type text, places int) AS lane, "
    f"LATERAL ({_FIRST_OF_LANE.format(columns=_PLACE, lane='lane.')} FOR UPDATE SKIP LOCKED) AS c"
)
_START_LANE = (
    "UPDATE jobs SET status = 'RUNNING', started_at = :now WHERE ctid = ANY(ARRAY("
    f"{_FIRST_OF_LANE.format(columns='ctid', lane=':')} FOR UPDATE SKIP LOCKED)) "
    f"RETURNING {JOB}, effective_priority, nextval('fences')"
)
"""On PostgreSQL finding, locking and starting the jobs of one lane are one statement, by the place of their rows: they
are locked, so it does not change. A job that was changed while the statement began is left to the next claim."""


def choose(tx: Transaction, lanes: list[Lane], capacity: Capacity, free_slots: FreeSlots) -> Chosen:
    """The jobs that have both a free slot of this worker and one of their pool."""
    shares = []
    for resource, type_ in lanes:
        places = len(free_slots.of(resource))
        free = capacity.free_for_jobs(resource, type_)
        count = places if free is None else min(places, free)
        if count:
            shares.append(_Share(resource, type_, count))
    if not shares:
        return _NO_ONE
    if len(shares) == 1:
        return _of_one_lane(tx, shares[0], free_slots)
    return _of_many_lanes(tx, shares, capacity, free_slots)


def _of_one_lane(tx: Transaction, share: _Share, free_slots: FreeSlots) -> Chosen:
    """No other lane competes: whatever is found has its place."""
    slots = free_slots.of(share.resource)[::-1]
    if tx.dialect == "sqlite":
        rows = tx.rows(_READ_LANE, **share._asdict())
        return Chosen([Candidate(row, slot, None) for row, slot in zip(rows, slots, strict=False)], is_running=False)
    rows = tx.rows(_START_LANE, now=tx.now, **share._asdict())
    rows.sort(key=lambda row: (-row[-2], row[_POSITION], row[_CREATED_AT], row[_ID]))
    fences = sorted(row[-1] for row in rows)
    candidates = [Candidate(row, slot, fence) for row, slot, fence in zip(rows, slots, fences, strict=False)]
    return Chosen(candidates, is_running=True)


def _of_many_lanes(tx: Transaction, shares: list[_Share], capacity: Capacity, free_slots: FreeSlots) -> Chosen:
    """Narrow rows of all lanes are put in order; the winners are read whole."""
    if tx.dialect == "postgres":
        places = tx.rows(_LOCK_PLACES, lanes=shares)
    else:
        places = [row for share in shares for row in tx.rows(_READ_PLACES, **share._asdict())]
    places.sort(key=lambda place: (-place[0], *place[1:4]))
    chosen: dict[str, tuple[int, int | None]] = {}
    for _, _, _, job_id, resource, type_, fence in places:
        slots = free_slots.of(resource)
        if slots and capacity.free_for_jobs(resource, type_) != 0:
            capacity.take(resource, type_)
            chosen[job_id] = (slots.pop(), fence)
    if not chosen:
        return _NO_ONE
    rows = {row[_ID]: row for row in tx.rows(f"SELECT {JOB} FROM jobs WHERE id IN :ids", ids=list(chosen))}
    return Chosen([Candidate(rows[job_id], *place) for job_id, place in chosen.items()], is_running=False)
