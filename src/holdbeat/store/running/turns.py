"""Turns: partitions of one priority are served one after the other (LIM-07).

Guards against a partition with a long queue: a lane whose limit is `fair` is not read in the order of its jobs. The
partition that was served last is kept in a row for each limit, with the starts that it had in its turn. All lanes that
the limit covers share it, so partitions take turns whatever the types of their jobs. Who had no jobs for a while has
saved up nothing. A job that somebody moved to the top goes first. Each start costs a seek in an index, however many
partitions there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdbeat.domain.capacity import Capacity
from holdbeat.domain.limit import Limits, Pool
from holdbeat.domain.turns import Turn
from holdbeat.store.limits.rates import rates_of
from holdbeat.store.limits.turns import TURN, keep_turn, turn_of
from holdbeat.store.running.lane_walk import (
    ABOVE_ALL,
    BY_PARTITION,
    DEPTH,
    FIRST,
    ID,
    PART,
    PARTITION,
    PLACE,
    PRIORITY,
    PUT_FIRST,
    RESOURCE,
    TYPE,
    WEIGHT,
    in_priority,
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
class LaneTurns:
    """The jobs of a fair lane whose turn it is, in the order of their turns, as rows of PLACE."""

    turn: Turn
    heaviest: int
    """What a job may weigh to have room ever."""
    first: list[Row]
    """The first jobs of the lane in the order of the queue."""
    rows: list[Row]
    visited: str | None = None
    """The partition at which the next claim goes on if nothing starts, where not all could be visited."""

    def add(self, queues: Mapping[str, list[Row]], room: Mapping[str, int | None]) -> None:
        """Further jobs of these partitions, of each as many as have room."""
        before = {row[ID] for row in self.rows}
        queues = {
            name: [row for row in queues.get(name, ()) if row[ID] not in before][:free] for name, free in room.items()
        }
        self.rows += self.turn.merged(queues)


def first_by_turn(
    tx: Transaction, limits: Limits, capacity: Capacity, pool: Pool, resource: str, type_: str, places: int
) -> LaneTurns:
    """Chooses up to `places` jobs, each with room in its partition, higher priorities first."""
    key = pool.key
    lane: dict[str, Any] = {"resource": resource, "type": type_}
    first_count = max(VISITED[0], 2 * places)
    kept, behind, window, highest, *walked = tx.all_rows(
        (TURN, {"key": key}),
        (_FIRST_PARTITIONS[tx.dialect], {**lane, "key": key, "count": first_count}),
        (FIRST, {**lane, "count": _WINDOW}),
        (_PRIORITY, {**lane, "below": ABOVE_ALL}),
        *unnamed_queries(tx, resource, type_, PART),
    )
    turns = LaneTurns(turn_of(tx, pool, kept), limits.heaviest(resource, type_), window, [])
    rated = {
        pool.key
        for pool in limits.covering(resource, type_)
        if pool.limit.per_partition and pool.limit.rate is not None
    }
    if rated and any(row[PUT_FIRST] for row in window):
        capacity.learn_rates(rates_of(tx, rated, {row[PARTITION] for row in window if row[PUT_FIRST]}))
    unnamed_rows = _unnamed(window) or unnamed(tx, resource, type_, PART, walked)
    first, unnamed_rows = _locked(tx, turns, _put_first(turns, capacity, window), unnamed_rows, places)
    below, highest_of_all = ABOVE_ALL, highest
    while len(turns.rows) < places:
        if below < ABOVE_ALL:
            highest = tx.rows(_PRIORITY, below=below, **lane)
        levels = [row[PRIORITY] for row in (*highest, *window, *unnamed_rows) if row[PRIORITY] < below]
        if not levels:
            break
        priority = max(levels)
        below = priority
        turns.rows += [row for row in first if row[PRIORITY] == priority]
        has_unnamed = any(row[PRIORITY] == priority for row in unnamed_rows)
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
        if not able and len(partitions) >= most:
            turns.visited = partitions[-1]
        able = able[: places + 1]
        rounds = max(1, min(places, READ_MAX // max(1, len(able))))
        queues = _jobs(tx, turns, able, {**lane, "priority": priority, "rounds": rounds})
        queues[""] = [row for row in unnamed_rows if row[PRIORITY] == priority]
        turns.add(queues, {partition: room[partition] for partition in able})
        if rounds < places and any(len(queues.get(partition, ())) == rounds for partition in able):
            break  # there are more of this priority than were read: the next claim has them
    if not turns.rows and capacity.free_for_jobs(resource, type_, "") != 0:
        answers = tx.all_rows(*unnamed_queries(tx, resource, type_, DEPTH))
        turns.rows += _locked(tx, turns, [], unnamed(tx, resource, type_, DEPTH, answers), places)[1]
    del turns.rows[places:]
    return turns


def _put_first(turns: LaneTurns, capacity: Capacity, window: list[Row]) -> list[Row]:
    """The jobs that somebody moved to the top and that have room, as many of each partition as have it."""
    used: Counter[str] = Counter()
    rows = []
    for row in window:
        if row[PUT_FIRST] and row[WEIGHT] <= turns.heaviest:
            partition = row[PARTITION]
            free = capacity.free_for_jobs(row[RESOURCE], row[TYPE], partition)
            if free is None or free > used[partition]:
                used[partition] += 1
                rows.append(row)
    return rows


def _unnamed(window: list[Row]) -> list[Row]:
    return [row for row in window if not row[PARTITION] and not row[PUT_FIRST]]


def _locked(
    tx: Transaction, turns: LaneTurns, first: list[Row], unnamed_rows: list[Row], places: int
) -> tuple[list[Row], list[Row]]:
    """Locks up to `places` of both, without those that can never have room."""
    ids = {row[ID] for row in first[:places]}
    light = [row[ID] for row in unnamed_rows if row[WEIGHT] <= turns.heaviest]
    rows = locked(tx, [*ids, *light[:places]])
    return [row for row in rows if row[ID] in ids], [row for row in rows if row[ID] not in ids]


def _in_turn(
    tx: Transaction,
    turns: LaneTurns,
    level: dict[str, object],
    has_unnamed: bool,
    most: int,
    behind: list[Row] | None,
) -> list[str]:
    """The partitions that have jobs of one priority, beginning behind the one that was served last."""
    sql = _PARTITIONS[tx.dialect]
    last = turns.turn.last
    if behind is None:
        behind = tx.rows(sql, after=last, count=most, **level)
    partitions = [row[0] for row in behind]
    if has_unnamed:
        partitions.append("")
    if last and len(partitions) < most:
        wrapped = tx.rows(sql, after="", count=most - len(partitions), **level)
        partitions += [row[0] for row in wrapped if row[0] <= last]
    return [last, *(partition for partition in partitions if partition != last)] if turns.turn.goes_on else partitions


def _jobs(tx: Transaction, turns: LaneTurns, partitions: list[str], level: dict[str, object]) -> dict[str, list[Row]]:
    """The first jobs of each of these partitions that could have room ever."""
    level["heaviest"] = turns.heaviest
    if tx.dialect == "sqlite":
        return {partition: tx.rows(_JOBS_OF_ONE, partition=partition, **level) for partition in partitions if partition}
    jobs: dict[str, list[Row]] = {}
    if any(partitions):
        for row in tx.rows(_JOBS_OF_ALL, partitions=[(partition,) for partition in partitions if partition], **level):
            jobs.setdefault(row[PARTITION], []).append(row)
    return jobs


def over_lanes(lanes: Sequence[LaneTurns]) -> list[Row]:
    """The jobs of all lanes of one limit in the order of their turns.

    Of each lane as many are enough as there are places: a job that is not among the first of its lane is not among the
    first of all.
    """
    if len(lanes) == 1:
        return lanes[0].rows
    rows = sorted((row for lane in lanes for row in lane.rows), key=in_priority)
    ordered: list[Row] = []
    for priority in sorted({row[PRIORITY] for row in rows}, reverse=True):
        level = [row for row in rows if row[PRIORITY] == priority]
        ordered += [row for row in level if row[PUT_FIRST]]
        queues: dict[str, list[Row]] = {}
        for row in level:
            if not row[PUT_FIRST]:
                queues.setdefault(row[PARTITION], []).append(row)
        ordered += lanes[0].turn.merged(queues)
    return ordered


def ranked(lanes: Sequence[LaneTurns], rows: Sequence[Row]) -> dict[str, tuple[Any, ...]]:
    """By id, the place of each of these jobs among those of other limits.

    Whose turn it is has the first place that jobs of its priority have in these lanes, the next one the second.
    """
    ranks = {}
    known = {row[ID]: row for lane in lanes for row in (*lane.first, *lane.rows)}.values()
    for priority in {row[PRIORITY] for row in rows}:
        places = sorted(in_priority(row) for row in known if row[PRIORITY] == priority)
        level = (row for row in rows if row[PRIORITY] == priority)
        ranks.update({row[ID]: (*place, row[ID]) for row, place in zip(level, places, strict=False)})
    return ranks


def keep_turns(
    tx: Transaction, key: str, lanes: Sequence[LaneTurns], rows: Sequence[Row], started: Collection[str]
) -> None:
    """Notes the partition that was served last and its starts, so that the next claim goes on from there."""
    turn = lanes[0].turn
    served = [row[PARTITION] for row in rows if row[ID] in started and not row[PUT_FIRST]]
    if served:
        turn = turn.after(served)
        last, in_a_row = turn.last, turn.taken
    else:
        visited = [lane.visited for lane in lanes if lane.visited is not None]
        if not visited:
            return
        last = min(visited, key=turn.rank)
        in_a_row = turn.weight(last)
    keep_turn(tx, key, last, in_a_row)
