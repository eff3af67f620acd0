"""Turns: partitions of one priority are served one after the other (LIM-07).

Guards against a partition with a long queue: a lane whose limit is `fair` is not read in the order of its jobs. The
partition that was served last is kept in a row, with the starts that it had in its turn: as many as its weight, or one.
Then the next one by name has its turn, and after the last the first. Who had no jobs for a while has saved up nothing.
A job that somebody moved to the top goes first. Each start costs a seek in an index, however many partitions there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from holdbeat.domain.capacity import Capacity
from holdbeat.domain.limit import Limits, Pool
from holdbeat.store.limits.rates import rates_of
from holdbeat.store.running.lane_walk import (
    ABOVE_ALL,
    BY_PARTITION,
    DEPTH,
    FIRST,
    PART,
    PARTITION,
    PLACE,
    PUT_FIRST,
    WEIGHT,
    locked,
    unnamed,
    unnamed_queries,
)
from holdbeat.store.running.partitions import PARTITIONS_MAX
from holdbeat.store.transaction import Row, Transaction

VISITED = (4, 256, PARTITIONS_MAX)
"""So many partitions are visited, more if none of them has room; behind the last of these the next claim goes on."""

_WINDOW = 16
"""So many jobs are looked at for those that somebody moved to the top, and for those without a partition."""
READ_MAX = 4096
"""About so many jobs are read in one claim."""

_PRIORITY = (
    f"SELECT effective_priority {BY_PARTITION} AND effective_priority < :below ORDER BY effective_priority DESC LIMIT 1"
)
_TURN = "SELECT partition FROM turns WHERE key = :key"
_LEVEL = f"{BY_PARTITION} AND effective_priority = :priority"
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
_FIRST_PARTITIONS = {
    dialect: sql.replace(":after", f"coalesce(({_TURN}), '')").replace(
        ":priority", f"(SELECT effective_priority {BY_PARTITION} ORDER BY effective_priority DESC LIMIT 1)"
    )
    for dialect, sql in _PARTITIONS.items()
}
"""Those of the highest priority, behind the one that was served last: asked together with what they depend on."""
_JOBS = (
    f"SELECT {PLACE} {_LEVEL} AND partition = {{partition}} AND weight <= :heaviest "
    "ORDER BY position, created_at, id LIMIT :rounds"
)
_JOBS_OF_ONE = _JOBS.format(partition=":partition")
_JOBS_OF_ALL = (
    "SELECT c.* FROM rows(:partitions; partition text) AS able, "
    f"LATERAL ({_JOBS.format(partition='able.partition')} FOR UPDATE SKIP LOCKED) AS c"
)


@dataclass(slots=True)
class Turns:
    """The jobs of a fair lane whose turn it is, in the order of their turns, as rows of PLACE."""

    key: str
    pool: Pool
    last: str
    """The partition that was served last, and the starts that it has had in its turn."""
    taken: int
    heaviest: int
    """What a job may weigh to have room ever."""
    rows: list[Row]
    visited: str | None = None
    """The partition at which the next claim goes on if none of these starts."""

    def weight(self, partition: str) -> int:
        return (self.pool.limit.weights or {}).get(partition, 1)

    @property
    def goes_on(self) -> bool:
        """Whether the turn of the partition that was served last is not over."""
        return 0 < self.taken < self.weight(self.last)


def fair_pool(limits: Limits, resource: str, type_: str) -> Pool | None:
    """By which limit the partitions of a lane take turns; None if none that covers it is fair."""
    return next((pool for pool in limits.covering(resource, type_) if pool.limit.fair), None)


def first_by_turn(
    tx: Transaction, limits: Limits, capacity: Capacity, pool: Pool, resource: str, type_: str, places: int
) -> Turns:
    """As many jobs as there are places, each with room in its partition, higher priorities first."""
    key = f"{pool.key}/{resource}/{type_}"
    lane: dict[str, Any] = {"resource": resource, "type": type_}
    first_count = max(VISITED[0], 2 * places)
    kept, behind, window, highest, *walked = tx.all_rows(
        ("SELECT partition, taken FROM turns WHERE key = :key", {"key": key}),
        (_FIRST_PARTITIONS[tx.dialect], {**lane, "key": key, "count": first_count}),
        (FIRST, {**lane, "count": _WINDOW}),
        (_PRIORITY, {**lane, "below": ABOVE_ALL}),
        *unnamed_queries(tx, resource, type_, PART),
    )
    last, taken = kept[0] if kept else ("", 0)
    turns = Turns(key, pool, last, taken, limits.heaviest(resource, type_), [])
    rated = {
        pool.key
        for pool in limits.covering(resource, type_)
        if pool.limit.per_partition and pool.limit.rate is not None
    }
    if rated and any(row[PUT_FIRST] for row in window):
        capacity.learn_rates(rates_of(tx, rated, {row[PARTITION] for row in window if row[PUT_FIRST]}))
    others = _unnamed(window) or unnamed(tx, resource, type_, PART, walked)
    first, others = _locked(tx, turns, _put_first(turns, capacity, window), others, places)
    below, highest_of_all = ABOVE_ALL, highest
    while len(turns.rows) < places:
        if below < ABOVE_ALL:
            highest = tx.rows(_PRIORITY, below=below, **lane)
        levels = [row[0] for row in (*highest, *window, *others) if row[0] < below]
        if not levels:
            break
        priority = max(levels)
        below = priority
        turns.rows += [row for row in first if row[0] == priority]
        has_unnamed = any(row[0] == priority for row in others)
        for most in VISITED:
            most = max(most, 2 * places)
            is_known = most == first_count and [(priority,)] == highest_of_all
            known = behind if is_known else None
            partitions = _in_turn(tx, turns, {**lane, "priority": priority}, has_unnamed, most, known)
            if rated:
                capacity.learn_rates(rates_of(tx, rated, partitions))
            room = {partition: capacity.free_for_jobs(resource, type_, partition) for partition in partitions}
            able = [partition for partition in partitions if room[partition] != 0]
            if able or len(partitions) < most:
                break
        turns.visited = partitions[-1] if partitions and not able else turns.visited
        able = able[: places + 1]
        rounds = max(1, min(places, READ_MAX // max(1, len(able))))
        queues = _jobs(tx, turns, able, {**lane, "priority": priority, "rounds": rounds})
        queues[""] = [row for row in others if row[0] == priority]
        turns.rows += _merged(turns, able, queues, room)
        if rounds < places and any(len(queues.get(partition, ())) == rounds for partition in able):
            break  # there are more of this priority than were read: the next claim has them
    if not turns.rows and capacity.free_for_jobs(resource, type_, "") != 0:
        answers = tx.all_rows(*unnamed_queries(tx, resource, type_, DEPTH))
        turns.rows += _locked(tx, turns, [], unnamed(tx, resource, type_, DEPTH, answers), places)[1]
    del turns.rows[places:]
    return turns


def _put_first(turns: Turns, capacity: Capacity, window: list[Row]) -> list[Row]:
    """The jobs that somebody moved to the top and that have room, as many of each partition as have it."""
    taken: Counter[str] = Counter()
    rows = []
    for row in window:
        if row[PUT_FIRST] and row[WEIGHT] <= turns.heaviest:
            partition = row[PARTITION]
            free = capacity.free_for_jobs(row[4], row[5], partition)
            if free is None or free > taken[partition]:
                taken[partition] += 1
                rows.append(row)
    return rows


def _unnamed(window: list[Row]) -> list[Row]:
    return [row for row in window if not row[PARTITION] and not row[PUT_FIRST]]


def _locked(
    tx: Transaction, turns: Turns, first: list[Row], others: list[Row], places: int
) -> tuple[list[Row], list[Row]]:
    """As many of both as there are places, locked, without those that can never have room."""
    ids = {row[3] for row in first[:places]}
    light = [row[3] for row in others if row[WEIGHT] <= turns.heaviest]
    rows = locked(tx, [*ids, *light[:places]])
    return [row for row in rows if row[3] in ids], [row for row in rows if row[3] not in ids]


def _merged(
    turns: Turns, partitions: list[str], queues: dict[str, list[Row]], room: dict[str, int | None]
) -> Iterator[Row]:
    """The jobs of partitions in the order of their turns: as many of each as it weighs, then of the next."""
    left = {}
    before = {row[3] for row in turns.rows}
    for partition in partitions:
        free = room[partition]
        rows = [row for row in queues.get(partition, ()) if row[3] not in before and row[WEIGHT] <= turns.heaviest]
        left[partition] = iter(rows if free is None else rows[:free])
    if turns.goes_on and turns.last in left:
        yield from islice(left[turns.last], turns.weight(turns.last) - turns.taken)
        partitions = [*(partition for partition in partitions if partition != turns.last), turns.last]
    while left:
        for partition in partitions:
            for _ in range(turns.weight(partition)):
                row = next(left[partition], None) if partition in left else None
                if row is None:
                    left.pop(partition, None)
                    break
                yield row


def _in_turn(
    tx: Transaction,
    turns: Turns,
    level: dict[str, object],
    has_unnamed: bool,
    most: int,
    behind: list[Row] | None,
) -> list[str]:
    """The partitions that have jobs of one priority, beginning behind the one that was served last."""
    sql = _PARTITIONS[tx.dialect]
    last = turns.last
    if behind is None:
        behind = tx.rows(sql, after=last, count=most, **level)
    partitions = [row[0] for row in behind]
    if has_unnamed:
        partitions.append("")
    if last and len(partitions) < most:
        wrapped = tx.rows(sql, after="", count=most - len(partitions), **level)
        partitions += [row[0] for row in wrapped if row[0] <= last]
    return [last, *(partition for partition in partitions if partition != last)] if turns.goes_on else partitions


def _jobs(tx: Transaction, turns: Turns, partitions: list[str], level: dict[str, object]) -> dict[str, list[Row]]:
    """The first jobs of each of these partitions that could have room ever."""
    level["heaviest"] = turns.heaviest
    if tx.dialect == "sqlite":
        return {partition: tx.rows(_JOBS_OF_ONE, partition=partition, **level) for partition in partitions if partition}
    jobs: dict[str, list[Row]] = {}
    if any(partitions):
        for row in tx.rows(_JOBS_OF_ALL, partitions=[(partition,) for partition in partitions if partition], **level):
            jobs.setdefault(row[PARTITION], []).append(row)
    return jobs


def keep_turns(tx: Transaction, turns: Turns, started: Collection[str]) -> None:
    """Notes the partition that was served last and its starts, so that the next claim goes on from there."""
    last, taken = turns.last, turns.taken
    served = [row[PARTITION] for row in turns.rows if row[3] in started and not row[PUT_FIRST]]
    for partition in served:
        is_same = partition == last and taken < turns.weight(partition)
        last, taken = partition, taken + 1 if is_same else 1
    if not served:
        if turns.visited is None:
            return
        last, taken = turns.visited, turns.weight(turns.visited)
    tx.execute(
        "INSERT INTO turns (key, partition, taken) VALUES (:key, :partition, :taken) "
        "ON CONFLICT (key) DO UPDATE SET partition = excluded.partition, taken = excluded.taken",
        key=turns.key,
        partition=last,
        taken=taken,
    )
