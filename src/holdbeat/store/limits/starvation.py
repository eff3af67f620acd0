"""Starvation: direct requests that leave the queue no slot (LIM-08).

A limit starves the queue if direct requests hold or wait for its slots, no job holds one, and the first job that could
run has had none for a while. Findings are kept in rows, so that each is reported once and ends when a job starts.

After `direct_burst` direct requests in a row a waiting job has the next slot of the limit; while that is 0, nothing of
this is read or written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from holdbeat.domain import events
from holdbeat.domain.clock import iso
from holdbeat.domain.limit import Limits, Pool
from holdbeat.store.ended_runs import HAD_RUN, RUN_END
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.pausing import EVERYTHING
from holdbeat.store.transaction import Transaction

Kind = tuple[str, str]
"""Resource and type."""


def queue_turns(tx: Transaction, limits: Limits, lanes: Iterable[Kind], waiting: Collection[Kind]) -> set[str]:
    """The keys of the limits that direct requests wait for and whose next slot a job will get."""
    keys = {pool.key for kind in waiting for pool in limits.covering(*kind) if pool.limit.slots is not None}
    keys &= {pool.key for lane in lanes for pool in limits.covering(*lane)}
    if not keys:
        return set()
    rows = tx.rows(
        "SELECT key FROM direct_streaks WHERE key IN :keys AND length >= :burst",
        keys=sorted(keys),
        burst=tx.terms.direct_burst,
    )
    return {row[0] for row in rows}


def keep_streaks(tx: Transaction, limits: Limits, served: Collection[Kind], started: Iterable[Kind]) -> None:
    """Counts the direct requests that got a slot, and begins anew where a job did. The limits are locked."""
    jobs = {pool.key for kind in started for pool in limits.covering(*kind)}
    if jobs:
        tx.execute("UPDATE direct_streaks SET length = 0 WHERE key IN :keys AND length > 0", keys=sorted(jobs))
    granted = Counter(pool.key for kind in served for pool in limits.covering(*kind) if pool.key not in jobs)
    if granted:
        tx.execute(
            "INSERT INTO direct_streaks (key, length) SELECT r.key, r.length "
            "FROM rows(:rows; key text, length int) AS r WHERE true "
            "ON CONFLICT (key) DO UPDATE SET length = direct_streaks.length + excluded.length",
            rows=sorted(granted.items()),
        )


_READY = "FROM jobs INDEXED BY jobs_ready WHERE status = 'QUEUED' AND hold = 0"
_FIRST = (
    f"SELECT ages_at, not_before, created_at {_READY} AND resource = :resource AND type = :type "
    "ORDER BY effective_priority DESC, position, created_at, id LIMIT 1"
)
_LAST_END = (
    f"SELECT {RUN_END} FROM jobs j INDEXED BY jobs_ran WHERE j.type = :type AND {HAD_RUN} "
    f"ORDER BY {RUN_END} DESC LIMIT 1"
)


@dataclass(frozen=True, slots=True)
class Starvation:
    """A limit whose slots all go to direct requests while jobs wait for them."""

    key: str
    limit: str
    resource: str
    since: datetime
    """Since when no job has had a slot, or since the first has waited."""


def starvation(tx: Transaction, starved_s: float) -> list[Starvation]:
    """The limits that have left the queue no slot for so long. Reads little where no direct request is under way."""
    kinds = tx.rows("SELECT DISTINCT resource, type FROM direct_reservations WHERE status = 'ACTIVE'")
    if not kinds:
        return []
    limits = limits_in_force(tx)
    pools_in_use = {pool.key: pool for kind in kinds for pool in limits.covering(*kind) if pool.limit.slots}
    for resource, type_ in tx.rows("SELECT DISTINCT resource, type FROM leases WHERE job_id IS NOT NULL"):
        for pool in limits.covering(resource, type_):
            pools_in_use.pop(pool.key, None)
    if not pools_in_use:
        return []
    paused = {row[0] for row in tx.rows("SELECT resource FROM queue_pauses")}
    lanes = [
        (resource, type_)
        for resource, type_ in tx.rows(f"SELECT DISTINCT resource, type {_READY}")
        if resource not in paused and EVERYTHING not in paused
    ]
    starved_pools = []
    for pool in pools_in_use.values():
        starved = _since(tx, limits, pool, lanes)
        if starved is not None and (tx.now - starved[1]).total_seconds() >= starved_s:
            starved_pools.append(Starvation(pool.key, pool.limit.name, *starved))
    return starved_pools


def _since(tx: Transaction, limits: Limits, pool: Pool, lanes: list[tuple[str, str]]) -> tuple[str, datetime] | None:
    """The resource of the job that has waited longest, and since when no job of the pool has had a slot."""
    waits = []
    ends = []
    for resource, type_ in lanes:
        if all(covering.key != pool.key for covering in limits.covering(resource, type_)):
            continue
        row = tx.one(_FIRST, resource=resource, type=type_)
        if row is not None:
            waits.append((tx.instant(next(at for at in row if at is not None)), resource))
        end = tx.one(_LAST_END, type=type_)
        if end is not None:
            ends.append(tx.instant(end[0]))
    if not waits:
        return None
    first, resource = min(waits)
    return resource, max([first, *ends])


def known_starvation(tx: Transaction) -> list[Starvation]:
    """The starvations that were noticed and have not ended, the longest first."""
    rows = tx.rows("SELECT key, limit_name, resource, since FROM starvations ORDER BY since, key")
    return [Starvation(row[0], row[1], row[2], tx.instant(row[3])) for row in rows]


def has_starvation_changed(tx: Transaction, starved_s: float) -> bool:
    """Whether `note_starvation` would change anything."""
    return {state.key for state in starvation(tx, starved_s)} != {state.key for state in known_starvation(tx)}


def note_starvation(tx: Transaction, starved_s: float) -> int:
    """Records every limit that has begun to starve the queue, once, and deletes those that have ended."""
    now = {state.key: state for state in starvation(tx, starved_s)}
    ended = [state.key for state in known_starvation(tx) if state.key not in now]
    if ended:
        tx.execute("DELETE FROM starvations WHERE key IN :keys", keys=ended)
    count = 0
    for state in sorted(now.values(), key=lambda state: state.key):
        inserted = tx.rows(
            "INSERT INTO starvations (key, limit_name, resource, since) VALUES (:key, :name, :resource, :since) "
            "ON CONFLICT (key) DO NOTHING RETURNING key",
            key=state.key,
            name=state.limit,
            resource=state.resource,
            since=state.since,
        )
        if inserted:
            count += 1
            waited_s = round((tx.now - state.since).total_seconds(), 3)
            tx.record(
                events.QUEUE_STARVED,
                limit=state.limit,
                resource=state.resource,
                since=iso(state.since),
                waited_s=waited_s,
            )
    return count
