"""Candidates: the jobs that a claim will start, in the order of INV-004 over all lanes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from holdbeat.domain.capacity import Capacity
from holdbeat.domain.limit import Limits
from holdbeat.store.limits.policies import PolicyView, work_of
from holdbeat.store.limits.rates import rates_of
from holdbeat.store.limits.turns import fair_pool
from holdbeat.store.reads.rows import JOBS
from holdbeat.store.running.lane_floor import (
    ENTRIES_READ,
    MOST_FLOORS,
    floor_params,
    floors_of,
    head_due_at,
    keep_floors,
    ranges,
)
from holdbeat.store.running.lane_walk import (
    ID,
    PARTITION,
    PLACE,
    PRIORITY,
    RESOURCE,
    TYPE,
    WEIGHT,
    in_priority,
    locked,
    next_part,
)
from holdbeat.store.running.lanes import Lane
from holdbeat.store.running.partitions import WINDOW, first_by_partition
from holdbeat.store.running.preference import Preference, prefer, tell_preferred
from holdbeat.store.running.turns import LaneTurns, first_by_turn, keep_turns, over_lanes, ranked
from holdbeat.store.running.vacancy import FreeSlots, Vacancy
from holdbeat.store.transaction import Row, Transaction


class Candidate(NamedTuple):
    """A job to start: its row of JOBS, its slot, and its fence where the database gave one out already."""

    row: Row
    slot: int
    fence: int | None


class Chosen(NamedTuple):
    candidates: list[Candidate]
    is_running: bool
    """Whether the statement that found them wrote RUNNING, too."""


class _Share(NamedTuple):
    """The places for jobs of a lane: how many could be started there."""

    resource: str
    type: str
    places: int
    heaviest: int
    """What a job may weigh to have room there ever."""


_NO_ONE = Chosen([], is_running=False)
_ID, _POSITION, _CREATED_AT = map(JOBS.fields.index, ("id", "position", "created_at"))

_FIRST_OF_LANE = (
    "SELECT {columns} FROM jobs INDEXED BY jobs_ready "
    "WHERE status = 'QUEUED' AND hold = 0 AND resource = {lane}resource AND type = {lane}type {condition}"
    "ORDER BY effective_priority DESC, position, created_at, id LIMIT {lane}places"
)
_READ_LANE = _FIRST_OF_LANE.format(columns=JOBS.columns, lane=":", condition="")
_READ_PLACES = _FIRST_OF_LANE.format(columns=PLACE, lane=":", condition="AND weight <= :heaviest ")


def _locked_from_floors(columns: str, condition: str, floors: int) -> str:
    """The first jobs of a lane on PostgreSQL, locked; the parts of the lane are read one after the other."""
    parts = [
        _FIRST_OF_LANE.format(columns=columns, lane=":", condition=f"{part}{condition}") + " FOR UPDATE SKIP LOCKED"
        for part in ranges(floors)
    ]
    if not floors:
        return parts[0]
    return (
        " UNION ALL ".join(f"SELECT * FROM ({part}) AS part{number}" for number, part in enumerate(parts))
        + " LIMIT :places"
    )


_LOCK_PLACES = [
    f"SELECT c.*, {ENTRIES_READ} FROM rows(:lanes; resource text, type text, places int, heaviest int) AS lane, "
    "LATERAL ("
    + _FIRST_OF_LANE.format(columns=PLACE, lane="lane.", condition="AND weight <= lane.heaviest ")
    + " FOR UPDATE SKIP LOCKED) AS c",
    *[_locked_from_floors(PLACE, "AND weight <= :heaviest ", floors) for floors in range(1, MOST_FLOORS + 1)],
]
"""By the number of floors: the first statement is for all lanes without any, the others are for one lane."""
_START_LANE = [
    "UPDATE jobs SET status = 'RUNNING', started_at = :now "
    f"WHERE ctid = ANY(ARRAY({_locked_from_floors('ctid', '', floors)})) "
    f"RETURNING {JOBS.columns}, (SELECT {ENTRIES_READ}), effective_priority, nextval('fences')"
    for floors in range(MOST_FLOORS + 1)
]
"""On PostgreSQL finding, locking and starting the jobs of one lane are one statement, by the place of their rows: they
are locked, so it does not change. A job that was changed while the statement began is left to the next claim. By the
number of floors."""
_WINNERS = {
    "sqlite": f"SELECT {JOBS.columns} FROM jobs WHERE id IN :ids",
    "postgres": f"SELECT {JOBS.columns}, nextval('fences') FROM jobs WHERE id IN :ids",
}


@dataclass(slots=True)
class Choice:
    """The candidates of a claim; the capacity counts those that were chosen as taken."""

    tx: Transaction
    limits: Limits
    capacity: Capacity
    free_slots: FreeSlots
    vacancy: Vacancy
    has_heavy: bool = False
    """Whether a ready job weighs more than one slot."""
    entries_read: int = 0
    """How many entries of jobs_ready had been read before, on PostgreSQL."""
    head_due_at: datetime | None = None
    """When a claim will look for jobs before the floors of lanes in which it found too few behind them."""
    _view: PolicyView | None = None

    def of(self, lanes: list[Lane]) -> Chosen:
        """The jobs that have both a free slot of this worker and room in every limit."""
        shares = []
        for resource, type_ in lanes:
            places = len(self.free_slots.of(resource))
            free = self.capacity.free_for_jobs(resource, type_, None)
            count = places if free is None else min(places, free)
            if count and self.tx.terms.policy is not None:
                count = max(count, WINDOW)
            if count:
                shares.append(_Share(resource, type_, count, self.limits.heaviest(resource, type_)))
        if not shares:
            return _NO_ONE
        if self.tx.terms.policy is not None:
            self._view = PolicyView(self.tx, self.tx.terms.policy)
        elif len(shares) == 1 and not self.has_heavy and not self._is_particular(shares[0]):
            return self._of_one_lane(shares[0])
        return self._of_many_lanes(shares)

    def _is_partitioned(self, share: _Share) -> bool:
        """Whether jobs of the lane may start or not by their partition."""
        lane = share.resource, share.type
        return self.limits.is_partitioned(*lane) or self.capacity.is_throttled(*lane)

    def _is_particular(self, share: _Share) -> bool:
        """Whether it matters which jobs of the lane are chosen, besides their order."""
        return self._is_partitioned(share) or share.resource in self.vacancy.affinities

    def _of_one_lane(self, share: _Share) -> Chosen:
        """No other lane competes: whatever is found has its place."""
        tx = self.tx
        free = self.free_slots.of(share.resource)
        slots = free[::-1]
        if tx.dialect == "sqlite":
            rows = tx.rows(_READ_LANE, resource=share.resource, type=share.type, places=share.places)
            candidates = [Candidate(row, slot, None) for row, slot in zip(rows, slots, strict=False)]
        else:
            floors = floors_of(tx, share.resource, share.type)
            rows = tx.rows(
                _START_LANE[len(floors)], now=tx.now, resource=share.resource, type=share.type, places=share.places,
                **floor_params(floors),
            )  # fmt: skip
            rows.sort(key=lambda row: (-row[-2], row[_POSITION], row[_CREATED_AT], row[_ID]))
            fences = sorted(row[-1] for row in rows)
            if rows:
                several = rows if rows[0][-2] != rows[-1][-2] else rows[:1]
                places = [(row[-2], row[_POSITION], row[_CREATED_AT], row[_ID]) for row in several]
                stepped_over = None if floors else rows[0][-3] - self.entries_read - len(rows)
                keep_floors(tx, share.resource, share.type, places, stepped_over)
            self._expect_more(share, floors, len(rows))
            candidates = [Candidate(row, slot, fence) for row, slot, fence in zip(rows, slots, fences, strict=False)]
        del free[len(free) - len(candidates) :]
        self.capacity.take(share.resource, share.type, count=len(candidates))
        return Chosen(candidates, is_running=tx.dialect == "postgres")

    def _of_many_lanes(self, shares: list[_Share]) -> Chosen:
        """Narrow rows of all lanes are put in order; the winners are read whole."""
        tx, limits, capacity = self.tx, self.limits, self.capacity
        places: list[Row] = []
        plain = []
        fair: dict[str, list[LaneTurns]] = {}
        for share in shares:
            if (pool := fair_pool(limits, share.resource, share.type)) is not None:
                fair.setdefault(pool.key, []).append(first_by_turn(tx, limits, capacity, pool, *share[:3]))
            elif self._is_partitioned(share):
                places += first_by_partition(tx, limits, capacity, *share[:3])
            else:
                plain.append(share)
        if plain and tx.dialect == "postgres":
            places += self._first_locked(plain)
        else:
            places += [row for share in plain for row in tx.rows(_READ_PLACES, **share._asdict())]
        in_turn = {key: over_lanes(lanes) for key, lanes in fair.items()}
        ranks: dict[str, tuple[Any, ...]] = {}
        for key, rows_in_turn in in_turn.items():
            places += rows_in_turn
            ranks |= ranked(fair[key], rows_in_turn)
        preferred: dict[str, Preference] = {}
        if self.vacancy.affinities:
            preferred = prefer(tx, self.vacancy, places, plain)
            places += [choice.row for choice in preferred.values() if choice.is_further]
        places.sort(key=lambda row: (-row[PRIORITY], row[ID] not in preferred, *ranks.get(row[ID], in_priority(row))))
        chosen = self._taken(places)
        for key, lanes in fair.items():
            keep_turns(tx, key, lanes, in_turn[key], chosen.keys())
        if not chosen and self._view is not None:
            chosen = self._permitted_behind(self._view, shares)
        if not chosen:
            return _NO_ONE
        tell_preferred(tx, self.vacancy, [preferred[job_id] for job_id in chosen if job_id in preferred])
        rows = {row[_ID]: row for row in tx.rows(_WINNERS[tx.dialect], ids=list(chosen))}
        fences = sorted(row[-1] for row in rows.values()) if tx.dialect == "postgres" else [None] * len(rows)
        candidates = [
            Candidate(rows[job_id], slot, fence) for (job_id, slot), fence in zip(chosen.items(), fences, strict=True)
        ]
        return Chosen(candidates, is_running=False)

    def _first_locked(self, shares: list[_Share]) -> list[Row]:
        """Rows of PLACE of the first jobs of these lanes on PostgreSQL, locked."""
        tx = self.tx
        floors = {share: floors_of(tx, share.resource, share.type) for share in shares}
        from_head = [share for share in shares if not floors[share]]
        queries = [(_LOCK_PLACES[0], {"lanes": from_head})] if from_head else []
        queries += [
            (_LOCK_PLACES[len(floors[share])], {**share._asdict(), **floor_params(floors[share])})
            for share in shares
            if floors[share]
        ]
        answers = tx.all_rows(*queries)
        stepped_over = answers[0][-1][-1] - self.entries_read - len(answers[0]) if from_head and answers[0] else None
        rows_of_lane: dict[tuple[str, str], list[Row]] = {}
        for row in itertools.chain(*answers):
            rows_of_lane.setdefault((row[RESOURCE], row[TYPE]), []).append(row)
        for share in shares:
            rows = rows_of_lane.get((share.resource, share.type), [])
            if rows:
                keep_floors(tx, share.resource, share.type, rows, None if floors[share] else stepped_over)
            self._expect_more(share, floors[share], len(rows))
        return list(itertools.chain(*answers))

    def _expect_more(self, share: _Share, floors: list[Row], count: int) -> None:
        """Lets the worker come again for jobs that may be before the floors, if too few were found behind them."""
        due_at = head_due_at(self.tx, share.resource, share.type) if floors and count < share.places else None
        if due_at is not None:
            self.head_due_at = min(due_at, self.head_due_at or due_at)

    def _permitted_behind(self, view: PolicyView, shares: list[_Share]) -> dict[str, int]:
        """Jobs behind the first ones of their lanes, none of which the policy permitted."""
        for resource, type_, _, heaviest in shares:
            rows = [row for row in next_part(self.tx, resource, type_) if row[WEIGHT] <= heaviest]
            permitted = [row for row in rows if view.permits(work_of(row))]
            rated = [pool.key for pool in self.limits.covering(resource, type_) if pool.limit.rate is not None]
            if rated and permitted:
                partitions = {row[PARTITION] for row in permitted}
                self.capacity.learn_rates(rates_of(self.tx, rated, partitions))
            able = [row for row in permitted if self.capacity.free_for_jobs(resource, type_, row[PARTITION]) != 0]
            ids = [row[ID] for row in able[:WINDOW]]
            if chosen := self._taken(locked(self.tx, ids)):
                return chosen
        return {}

    @staticmethod
    def _permitted(view: PolicyView, place: Row) -> bool:
        work = work_of(place)
        if not view.permits(work):
            return False
        view.start(work)
        return True

    def _taken(self, places: list[Row]) -> dict[str, int]:
        """Takes those that have room, in this order: the slot of each job. A heavy one at the head is waited for."""
        capacity = self.capacity
        chosen: dict[str, int] = {}
        for place in places:
            job_id, resource, type_, partition, weight = place[3:8]
            slots = self.free_slots.of(resource)
            if not slots:
                continue
            if capacity.free_for_jobs(resource, type_, partition, weight) != 0:
                if self._view is not None and not self._permitted(self._view, place):
                    continue
                capacity.take(resource, type_, partition, weight=weight)
                chosen[job_id] = slots.pop()
            elif weight > 1:
                capacity.keep_for(resource, type_, partition, weight)
        return chosen
