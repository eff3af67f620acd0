"""Lanes: the (resource, type) pairs that have ready jobs, found without reading the jobs.

Guards INV-004 against the length of the queue: neither a full resource nor a foreign type nor a million jobs in front
costs a claim anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from holdbeat.domain.limit import Limits
from holdbeat.domain.reservation import Reservation
from holdbeat.store.jobs.expiry import EXPIRING, expire_jobs
from holdbeat.store.limits.in_force import VERSION, limits_of_version
from holdbeat.store.pausing import EVERYTHING, wait_for_pauses
from holdbeat.store.queue.ageing import AT_ONCE, apply_ageing
from holdbeat.store.reads.workers import live_workers
from holdbeat.store.running.capacity import WAITING, waiting_reservations
from holdbeat.store.running.lane_floor import ENTRIES_READ, keep_lanes, known_lanes
from holdbeat.store.running.lane_walk import Query
from holdbeat.store.running.vacancy import Vacancy
from holdbeat.store.transaction import Row, Transaction


class Lane(NamedTuple):
    resource: str
    type: str


_DELAYED = "FROM jobs INDEXED BY jobs_delayed WHERE status = 'QUEUED' AND hold = 1"
_HEAVY = (
    "(SELECT min(resource) FROM jobs INDEXED BY jobs_heavy WHERE status = 'QUEUED' AND hold = 0 AND weight > 1) "
    "IS NOT NULL"
)
_NEXT_DELAYED = f"SELECT min(not_before) {_DELAYED}"
_SIGNS = (
    f"SELECT ({_NEXT_DELAYED}), EXISTS (SELECT 1 FROM queue_pauses), "
    f"EXISTS (SELECT 1 FROM direct_reservations {WAITING}), {VERSION}, "
    f"(SELECT max(until) FROM throttles), {_HEAVY}, (SELECT min(expires_at) {EXPIRING}), "
)
_SIGNS_OF = {"sqlite": f"{_SIGNS}0", "postgres": f"{_SIGNS}{ENTRIES_READ}"}
"""The version of the limits, whether there is anything besides ready jobs, and how many entries of jobs_ready have been
read. Mostly there is nothing else, and a claim need not look closer.

Nothing here is compared with the time, so on PostgreSQL it is asked together with the time. The first delayed job is
asked for by its order: PostgreSQL takes a third of the jobs to be earlier than an instant that it does not know, and
would read the whole table to find one."""

_READY = "FROM jobs INDEXED BY jobs_ready WHERE status = 'QUEUED' AND hold = 0"
_LAST = "ORDER BY resource DESC, type DESC LIMIT 1"
_LANES = {
    "sqlite": (
        "WITH RECURSIVE lane(resource, type) AS ("
        f" SELECT * FROM (SELECT resource, type {_READY} {_LAST})"
        " UNION ALL SELECT j.resource, j.type FROM lane, jobs j WHERE j.rowid = coalesce("
        f"(SELECT rowid {_READY} AND resource = lane.resource AND type < lane.type {_LAST}),"
        f" (SELECT rowid {_READY} AND resource < lane.resource {_LAST})))"
        " SELECT resource, type FROM lane"
    ),
    "postgres": (
        "WITH RECURSIVE lane(resource, type) AS ("
        f" (SELECT resource, type {_READY} {_LAST})"
        " UNION ALL SELECT next.* FROM lane, LATERAL (SELECT resource, type"
        f" {_READY} AND (resource, type) < (lane.resource, lane.type) {_LAST}) AS next)"
        f" SELECT resource, type, NULL FROM lane UNION ALL SELECT NULL, NULL, {ENTRIES_READ}"
    ),
}
"""Every (resource, type) that has ready jobs, found by seeking from one to the next in the index, so that the
length of the queue does not matter. From the end, where the newest jobs of a lane are: while a snapshot stays open,
PostgreSQL must step over every entry of a job that has started since, and those are at the beginning. The last row says
how many entries have been read. SQLite seeks by the first of two compared columns only."""


@dataclass(slots=True)
class QueueState:
    """The state of the queue, which a claim reads first."""

    limits: Limits
    """Those in force."""
    lanes: list[Lane]
    """Those that this worker may serve now."""
    waiting: list[Reservation]
    """The direct requests that go first."""
    is_throttled: bool = False
    """Whether anything is."""
    has_heavy: bool = False
    """Whether a ready job weighs more than one slot."""
    next_check_at: datetime | None = None
    """When the first delayed job will be ready, or lanes are searched for again."""
    entries_read: int = 0
    """How many entries of jobs_ready have been read up to here, on PostgreSQL."""


def read_queue_state(tx: Transaction, vacancy: Vacancy) -> QueueState:
    """Reads the lanes and requests that a worker could serve, without reading jobs."""
    apply_ageing(tx)
    wait_for_pauses(tx)
    known = known_lanes(tx)
    searches: list[Query] = [(_LANES[tx.dialect], {})] if known is None else []
    signs, *searched = tx.all_rows((_SIGNS_OF[tx.dialect], {}), *searches)
    not_before, paused, waiting, version, throttled_until, has_heavy, expires_at, entries_read = signs[0]
    limits = limits_of_version(tx, version)
    if expires_at is not None and tx.instant(expires_at) <= tx.now:
        expire_jobs(tx)
        searched = [tx.rows(_LANES[tx.dialect])]
    if not_before is not None and tx.instant(not_before) <= tx.now:
        promote(tx)
        apply_ageing(tx)
        rows, ((not_before,),) = tx.all_rows((_LANES[tx.dialect], {}), (_NEXT_DELAYED, {}))
        searched = [rows]
    next_check_at = tx.time(not_before)
    if searched:
        read_before = entries_read
        ready, entries_read = _lanes_of(tx, searched[0])
        if tx.dialect == "postgres":
            keep_lanes(tx, ready, entries_read - read_before)
    else:
        assert known is not None and known.until is not None
        ready, next_check_at = [Lane(*lane) for lane in known.lanes], min(known.until, next_check_at or known.until)
    pauses = {row[0] for row in tx.rows("SELECT resource FROM queue_pauses")} if paused else set()
    lanes = _served(ready, pauses, vacancy)
    reservations = waiting_reservations(tx) if waiting else []
    is_throttled = throttled_until is not None and throttled_until > tx.now.timestamp()
    return QueueState(limits, lanes, reservations, is_throttled, bool(has_heavy), next_check_at, entries_read)


def _lanes_of(tx: Transaction, rows: list[Row]) -> tuple[list[Lane], int]:
    """The lanes in an answer to _LANES, and how many entries of the index had been read then."""
    entries_read = rows.pop()[2] if tx.dialect == "postgres" else 0
    return [Lane(row[0], row[1]) for row in rows], entries_read


def lanes_with_workers(tx: Transaction) -> list[Lane]:
    """The lanes of the whole store that some live worker serves."""
    workers = [worker for worker in live_workers(tx) if worker.stopping_at is None]
    lanes, _ = _lanes_of(tx, tx.rows(_LANES[tx.dialect]))
    return [lane for lane in lanes if any(worker.can_serve(*lane) for worker in workers)]


def promote(tx: Transaction) -> None:
    """Makes every delayed job ready whose time has come. All of them: a cap would break the claim order.

    It has waited since that time, however late somebody looks.
    """
    while True:
        ripe = tx.rows(
            f"SELECT id {_DELAYED} AND not_before <= :now ORDER BY not_before LIMIT :few FOR UPDATE SKIP LOCKED",
            now=tx.now,
            few=AT_ONCE,
        )
        if ripe:
            tx.execute(
                "UPDATE jobs SET hold = 0, ages_at = not_before WHERE id IN :ids",
                ids=[row[0] for row in ripe],
            )
        if len(ripe) < AT_ONCE:
            return


def _served(lanes: Iterable[Lane], paused: set[str], vacancy: Vacancy) -> list[Lane]:
    """The lanes that are not paused and that this worker may serve."""
    if EVERYTHING in paused:
        return []
    known = set(vacancy.types)
    return [
        lane
        for lane in lanes
        if lane.type in known
        and lane.resource not in paused
        and vacancy.permits(lane.resource)
        and vacancy.slots_for(lane.resource)
    ]
