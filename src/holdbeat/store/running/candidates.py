"""Candidates: the jobs that a claim will start, in the order of INV-004 over all lanes."""

from __future__ import annotations

from typing import NamedTuple

from holdbeat.domain.capacity import Capacity
from holdbeat.domain.limit import Limits
from holdbeat.store.reads.rows import JOB, JOB_FIELDS
from holdbeat.store.running.lanes import Lane
from holdbeat.store.running.partitions import PLACE, first_by_partition
from holdbeat.store.running.turns import fair_key, first_by_turn, keep_turns
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
_READ_LANE = _FIRST_OF_LANE.format(columns=JOB, lane=":")
_READ_PLACES = _FIRST_OF_LANE.format(columns=f"{PLACE}, NULL", lane=":")
_LOCK_PLACES = (
    "SELECT c.*, nextval('fences') FROM rows(:lanes; resource text, type text, places int) AS lane, "
    f"LATERAL ({_FIRST_OF_LANE.format(columns=PLACE, lane='lane.')} FOR UPDATE SKIP LOCKED) AS c"
)
_START_LANE = (
    "UPDATE jobs SET status = 'RUNNING', started_at = :now WHERE ctid = ANY(ARRAY("
    f"{_FIRST_OF_LANE.format(columns='ctid', lane=':')} FOR UPDATE SKIP LOCKED)) "
    f"RETURNING {JOB}, effective_priority, nextval('fences')"
)
"""On PostgreSQL finding, locking and starting the jobs of one lane are one statement, by the place of their rows: they
are locked, so it does not change. A job that was changed while the statement began is left to the next claim."""


def choose(tx: Transaction, limits: Limits, lanes: list[Lane], capacity: Capacity, free_slots: FreeSlots) -> Chosen:
    """The jobs that have both a free slot of this worker and room in every limit; the capacity counts them as taken."""
    shares = []
    for resource, type_ in lanes:
        places = len(free_slots.of(resource))
        free = capacity.free_for_jobs(resource, type_, None)
        count = places if free is None else min(places, free)
        if count:
            shares.append(_Share(resource, type_, count))
    if not shares:
        return _NO_ONE
    if len(shares) == 1 and not _is_partitioned(limits, capacity, shares[0]):
        return _of_one_lane(tx, shares[0], capacity, free_slots)
    return _of_many_lanes(tx, limits, shares, capacity, free_slots)


def _is_partitioned(limits: Limits, capacity: Capacity, share: _Share) -> bool:
    """Whether jobs of the lane may start or not by their partition."""
    lane = share.resource, share.type
    return limits.is_partitioned(*lane) or capacity.is_throttled(*lane)


def _of_one_lane(tx: Transaction, share: _Share, capacity: Capacity, free_slots: FreeSlots) -> Chosen:
    """No other lane competes: whatever is found has its place."""
    free = free_slots.of(share.resource)
    slots = free[::-1]
    if tx.dialect == "sqlite":
        rows = tx.rows(_READ_LANE, **share._asdict())
        candidates = [Candidate(row, slot, None) for row, slot in zip(rows, slots, strict=False)]
    else:
        rows = tx.rows(_START_LANE, now=tx.now, **share._asdict())
        rows.sort(key=lambda row: (-row[-2], row[_POSITION], row[_CREATED_AT], row[_ID]))
        fences = sorted(row[-1] for row in rows)
        candidates = [Candidate(row, slot, fence) for row, slot, fence in zip(rows, slots, fences, strict=False)]
    del free[len(free) - len(candidates) :]
    capacity.take(share.resource, share.type, count=len(candidates))
    return Chosen(candidates, is_running=tx.dialect == "postgres")


def _of_many_lanes(
    tx: Transaction, limits: Limits, shares: list[_Share], capacity: Capacity, free_slots: FreeSlots
) -> Chosen:
    """Narrow rows of all lanes are put in order; the winners are read whole."""
    places: list[Row] = []
    plain = []
    turns = []
    for share in shares:
        if (key := fair_key(limits, share.resource, share.type)) is not None:
            turns.append(first_by_turn(tx, limits, capacity, key, *share))
            places += [(*row, None) for row in turns[-1].rows]
        elif _is_partitioned(limits, capacity, share):
            places += [(*row, None) for row in first_by_partition(tx, limits, capacity, *share)]
        else:
            plain.append(share)
    if plain and tx.dialect == "postgres":
        places += tx.rows(_LOCK_PLACES, lanes=plain)
    else:
        places += [row for share in plain for row in tx.rows(_READ_PLACES, **share._asdict())]
    places.sort(key=lambda place: (-place[0], *place[1:4]))
    chosen: dict[str, tuple[int, int | None]] = {}
    has_fences = True
    for _, _, _, job_id, resource, type_, partition, fence in places:
        slots = free_slots.of(resource)
        if slots and capacity.free_for_jobs(resource, type_, partition) != 0:
            capacity.take(resource, type_, partition)
            chosen[job_id] = (slots.pop(), fence)
            has_fences = has_fences and fence is not None
    for lane_turns in turns:
        keep_turns(tx, lane_turns, chosen.keys())
    if not chosen:
        return _NO_ONE
    rows = {row[_ID]: row for row in tx.rows(f"SELECT {JOB} FROM jobs WHERE id IN :ids", ids=list(chosen))}
    candidates = [
        Candidate(rows[job_id], slot, fence if has_fences else None) for job_id, (slot, fence) in chosen.items()
    ]
    return Chosen(candidates, is_running=False)
