"""Floors: where a claim begins in a lane while PostgreSQL keeps dead index entries of jobs that have started.

Guards INV-004 against a transaction that stays open, such as a dump: it holds the xmin horizon back. Meanwhile the
server removes no dead tuple from jobs_ready, and a claim from the head of a lane steps over every job that has started
since, about 1 µs for each. After a claim that stepped over many, the next ones begin where the last one found the
first job of each priority. From time to time one begins at the head again, so that this takes at most a twentieth of
the time. Only that one finds jobs that became ready before a floor, such as retries: they wait for 5 s at most. A job
of a higher priority does not wait.

The search for lanes steps over the same entries while nothing is ready. After one that stepped over many, the next
claims look at each lane that the process knows, for as long.

Both are hints, kept in memory. Without such a transaction there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from holdbeat.store.transaction import Row, Transaction

ENTRIES_READ = "pg_stat_get_xact_tuples_returned('jobs_ready'::regclass)"
"""How many entries this session has read from the index, since some instant before the transaction."""
TOLERATED_DEAD_ENTRIES = 500
"""A claim or a search that steps over more of them lets the next ones begin at floors, or look at known lanes."""
_ENTRIES_PER_MS = 50
"""The next ones do so for 1 ms for each 50 entries, which take about 0.05 ms."""
_LONGEST_PAUSE_MS = 5000
MOST_FLOORS = 4
"""How many priorities of a lane have a floor: those of the last claims."""
MOST_LANES = 16
"""With more lanes than this a claim always searches."""
_MOST_KEPT = 1000
"""With floors of more lanes than this all are dropped."""


@dataclass(slots=True)
class KnownLanes:
    lanes: dict[tuple[str, str], None] = field(default_factory=dict)
    until: datetime | None = None
    """Until then claims look at each of these lanes; None: they search for lanes with ready jobs."""


def known_lanes(tx: Transaction) -> KnownLanes | None:
    """The lanes to look at; None: a search is due."""
    known: KnownLanes | None = tx.terms.known_lanes
    if known is None or known.until is None or len(known.lanes) > MOST_LANES:
        return None
    return known if known.until > tx.now else None


def keep_lanes(tx: Transaction, lanes: Sequence[tuple[str, str]], stepped_over: int) -> None:
    """Takes note of the lanes that a search has found, and how many entries it stepped over."""
    known: KnownLanes = tx.terms.known_lanes or KnownLanes()
    if len(known.lanes) <= MOST_LANES:
        known.lanes.update(dict.fromkeys(lanes))
    known.until = _pause_after(tx, stepped_over)
    tx.terms.known_lanes = known


def _pause_after(tx: Transaction, stepped_over: int) -> datetime | None:
    if stepped_over <= TOLERATED_DEAD_ENTRIES:
        return None
    return tx.now + timedelta(milliseconds=min(_LONGEST_PAUSE_MS, stepped_over // _ENTRIES_PER_MS))


@dataclass(slots=True)
class LaneFloors:
    places: dict[int, Row] = field(default_factory=dict)
    """By priority: (priority, position, created_at, id) of the first job that the last claim found there."""
    until: datetime | None = None
    """Until then claims begin at the floors; None: at the head of the lane."""


def floors_of(tx: Transaction, resource: str, type_: str) -> list[Row]:
    """Where a claim begins in this lane, in its order; nothing: at its head."""
    lane = tx.terms.floors.get((resource, type_))
    if lane is None or lane.until is None or lane.until <= tx.now:
        return []
    return sorted(list(lane.places.values())[-MOST_FLOORS:], key=lambda place: -place[0])


def keep_floors(tx: Transaction, resource: str, type_: str, places: Sequence[Row], stepped_over: int | None) -> None:
    """Takes note of what a claim found in this lane, in its order, and how many entries it stepped over from the head;
    None if it began at floors."""
    if len(tx.terms.floors) > _MOST_KEPT:
        tx.terms.floors.clear()  # whoever names a resource for each job must not fill the memory
    lane: LaneFloors = tx.terms.floors.setdefault((resource, type_), LaneFloors())
    for place in reversed(places):
        lane.places.pop(place[0], None)
        lane.places[place[0]] = place[:4]
    if stepped_over is not None:
        lane.until = _pause_after(tx, stepped_over)


def head_due_at(tx: Transaction, resource: str, type_: str) -> datetime | None:
    """When a claim will begin at the head of the lane again, if they begin at floors now."""
    lane = tx.terms.floors.get((resource, type_))
    return None if lane is None else lane.until


def ranges(floors: int) -> list[str]:
    """Conditions for the parts of a lane that begin at so many floors, in its order. The floors are parameters."""
    parts = []
    below = ""
    for number in range(floors):
        parts.append(f"{below}AND effective_priority > :priority{number} ")
        parts.append(
            f"AND effective_priority = :priority{number} "
            f"AND (position, created_at, id) >= (:position{number}, :created_at{number}, :id{number}) "
        )
        below = f"AND effective_priority < :priority{number} "
    return [*parts, below]


def floor_params(floors: Sequence[Row]) -> dict[str, Any]:
    names = ("priority", "position", "created_at", "id")
    return {
        f"{name}{number}": value
        for number, floor in enumerate(floors)
        for name, value in zip(names, floor, strict=True)
    }
