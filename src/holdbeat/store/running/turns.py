"""Turns: partitions of one priority are served one after the other (LIM-07).

Guards against a partition with a long queue: a lane whose limit is `fair` is not read in the order of its jobs. The
partition that was served last is kept in a row; the next one by name has its turn, and after the last the first. Who
had no jobs for a while has saved up nothing. Each start costs a seek in an index, however many partitions there are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from holdbeat.domain.capacity import Capacity
from holdbeat.domain.limit import Limits
from holdbeat.store.limits.rates import rates_of
from holdbeat.store.running.partitions import PARTITION, PLACE, WINDOW, first_of_lane
from holdbeat.store.transaction import Row, Transaction

VISITED_MAX = 256
"""So many partitions are visited in one claim; if none of them has room, the next claim goes on behind them."""

READ_MAX = 4096
"""About so many jobs are read in one claim."""

_LANE = (
    "FROM jobs INDEXED BY jobs_turns WHERE status = 'QUEUED' AND hold = 0 AND partition <> '' "
    "AND resource = :resource AND type = :type"
)
_PRIORITY = (
    f"SELECT effective_priority {_LANE} AND effective_priority < :below ORDER BY effective_priority DESC LIMIT 1"
)
_LEVEL = f"{_LANE} AND effective_priority = :priority"
_NEXT = "ORDER BY partition, position, created_at, id LIMIT 1"
_PARTITIONS = {
    "sqlite": (
        "WITH RECURSIVE turn(partition) AS ("
        f" SELECT * FROM (SELECT partition {_LEVEL} AND partition > :after {_NEXT})"
        " UNION ALL SELECT j.partition FROM turn, jobs j WHERE j.rowid ="
        f" (SELECT rowid {_LEVEL} AND partition > turn.partition {_NEXT}) LIMIT :count)"
        " SELECT partition FROM turn"
    ),
    "postgres": (
        "WITH RECURSIVE turn(partition) AS ("
        f" (SELECT partition {_LEVEL} AND partition > :after {_NEXT})"
        " UNION ALL SELECT next.* FROM turn, LATERAL"
        f" (SELECT partition {_LEVEL} AND partition > turn.partition {_NEXT}) AS next)"
        " SELECT partition FROM turn LIMIT :count"
    ),
}
_JOBS = f"SELECT {PLACE} {_LEVEL} AND partition = {{partition}} ORDER BY position, created_at, id LIMIT :rounds"
_JOBS_OF_ONE = _JOBS.format(partition=":partition")
_JOBS_OF_ALL = (
    "SELECT c.* FROM rows(:partitions; partition text) AS given, "
    f"LATERAL ({_JOBS.format(partition='given.partition')} FOR UPDATE SKIP LOCKED) AS c"
)


@dataclass(slots=True)
class Turns:
    """The jobs of a fair lane whose turn it is, in the order of their turns, as rows of PLACE."""

    key: str
    rows: list[Row]
    visited: str | None = None
    """The partition at which the next claim goes on if none of these starts."""


def fair_key(limits: Limits, resource: str, type_: str) -> str | None:
    """Under what the turns of a lane are kept; None if no limit that covers it is fair."""
    pool = next((pool for pool in limits.covering(resource, type_) if pool.limit.fair), None)
    return None if pool is None else f"{pool.key}/{resource}/{type_}"


def first_by_turn(
    tx: Transaction, limits: Limits, capacity: Capacity, key: str, resource: str, type_: str, places: int
) -> Turns:
    """As many jobs as there are places, each with room in its partition, higher priorities first."""
    row = tx.one("SELECT partition FROM turns WHERE key = :key", key=key)
    turns = Turns(key, [])
    last = row[0] if row else ""
    lane = {"resource": resource, "type": type_}
    pools = limits.covering(resource, type_)
    rated = {pool.key for pool in pools if pool.limit.per_partition and pool.limit.rate is not None}
    unnamed = [row for row in first_of_lane(tx, resource, type_, WINDOW) if not row[PARTITION]]
    below = 101
    while len(turns.rows) < places:
        highest = tx.one(_PRIORITY, below=below, **lane)
        priority = max([highest[0]] if highest else [], default=-1)
        priority = max([priority, *(row[0] for row in unnamed if row[0] < below)])
        if priority < 0:
            break
        below = priority
        has_unnamed = any(row[0] == priority for row in unnamed)
        for most in (max(16, 2 * places), VISITED_MAX):
            partitions = _in_turn(tx, last, {**lane, "priority": priority}, has_unnamed, most)
            if rated:
                capacity.learn_rates(rates_of(tx, rated, partitions))
            room = {partition: capacity.free_for_jobs(resource, type_, partition) for partition in partitions}
            able = [partition for partition in partitions if room[partition] != 0]
            if able or len(partitions) < most:
                break
        turns.visited = partitions[-1] if partitions and not able else turns.visited
        able = able[:places]
        rounds = max(1, min(places, READ_MAX // max(1, len(able))))
        queues = _jobs(tx, able, priority, lane, rounds)
        queues[""] = [row for row in unnamed if row[0] == priority]
        for number in range(places):
            for name in able:
                free = room[name]
                if number < len(queues.get(name, ())) and (free is None or number < free):
                    turns.rows.append(queues[name][number])
        if rounds < places and any(len(queues.get(name, ())) == rounds for name in able):
            break  # there are more of this priority than were read: the next claim has them
    del turns.rows[places:]
    return turns


def _in_turn(tx: Transaction, last: str, level: dict[str, object], has_unnamed: bool, most: int) -> list[str]:
    """The partitions that have jobs of one priority, beginning behind the one that was served last."""
    sql = _PARTITIONS[tx.dialect]
    partitions = [row[0] for row in tx.rows(sql, after=last, count=most, **level)]
    if has_unnamed:
        partitions.append("")
    if last and len(partitions) < most:
        wrapped = tx.rows(sql, after="", count=most - len(partitions), **level)
        partitions += [row[0] for row in wrapped if row[0] <= last]
    return partitions


def _jobs(
    tx: Transaction, partitions: list[str], priority: int, lane: dict[str, str], rounds: int
) -> dict[str, list[Row]]:
    """The first jobs of each of these partitions."""
    level = {**lane, "priority": priority, "rounds": rounds}
    if tx.dialect == "sqlite":
        return {partition: tx.rows(_JOBS_OF_ONE, partition=partition, **level) for partition in partitions if partition}
    jobs: dict[str, list[Row]] = {}
    if any(partitions):
        for row in tx.rows(_JOBS_OF_ALL, partitions=[(partition,) for partition in partitions if partition], **level):
            jobs.setdefault(row[PARTITION], []).append(row)
    return jobs


def keep_turns(tx: Transaction, turns: Turns, started: Collection[str]) -> None:
    """Notes the partition that was served last, so that the next claim goes on behind it."""
    served = [row[PARTITION] for row in turns.rows if row[3] in started]
    partition = served[-1] if served else turns.visited
    if partition is not None:
        tx.execute(
            "INSERT INTO turns (key, partition) VALUES (:key, :partition) "
            "ON CONFLICT (key) DO UPDATE SET partition = excluded.partition",
            key=turns.key,
            partition=partition,
        )
