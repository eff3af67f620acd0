"""The first jobs of a lane whose limits count by partition (LIM-04).

Guards the claim against a partition that is full and has a long queue: its jobs are not read one by one. Mostly the
first few jobs of the lane contain enough that may start. If not, the first job of each partition is found by seeking
from one partition to the next in an index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdbeat.domain.capacity import Capacity
from holdbeat.domain.limit import Limits
from holdbeat.store.limits.rates import rates_of
from holdbeat.store.running.lane_walk import (
    BY_PARTITION,
    DEPTH,
    ID,
    PARTITION,
    PRIORITY,
    WEIGHT,
    first_of_lane,
    in_priority,
    locked,
    unnamed,
    unnamed_queries,
)
from holdbeat.store.transaction import Row, Transaction

WINDOW = 64
"""So many jobs are looked at before partitions are sought one by one."""
_FEW = 4
"""So many are looked at first: mostly they are enough, and PostgreSQL writes to each that it locks."""
PARTITIONS_MAX = 5000
"""So many partitions are sought at the most, those of higher priority first."""

_TURNS = f"{BY_PARTITION} AND weight <= :heaviest"
_FIRST = "ORDER BY effective_priority DESC, partition, position, created_at, id LIMIT 1"
_HEADS = {
    "sqlite": (
        "WITH RECURSIVE head(priority, partition, id) AS ("
        f" SELECT * FROM (SELECT effective_priority, partition, id {_TURNS} {_FIRST})"
        " UNION ALL SELECT j.effective_priority, j.partition, j.id FROM head, jobs j WHERE j.rowid = coalesce("
        f"(SELECT rowid {_TURNS} AND effective_priority = head.priority AND partition > head.partition {_FIRST}),"
        f" (SELECT rowid {_TURNS} AND effective_priority < head.priority {_FIRST})) LIMIT :count)"
        " SELECT id, partition FROM head"
    ),
    "postgres": (
        "WITH RECURSIVE head(priority, partition, id) AS ("
        f" (SELECT effective_priority, partition, id {_TURNS} {_FIRST})"
        " UNION ALL SELECT next.* FROM head, LATERAL ("
        f" (SELECT effective_priority, partition, id {_TURNS} AND effective_priority = head.priority"
        f" AND partition > head.partition {_FIRST}) UNION ALL"
        f" (SELECT effective_priority, partition, id {_TURNS} AND effective_priority < head.priority {_FIRST})"
        " LIMIT 1) AS next)"
        " SELECT id, partition FROM head LIMIT :count"
    ),
}
"""The first job of each partition of each priority that could have room ever, in the order of the index."""


def first_by_partition(
    tx: Transaction, limits: Limits, capacity: Capacity, resource: str, type_: str, places: int
) -> list[Row]:
    """Rows of PLACE of jobs that have room in their partitions, in order, and as many as are needed if they exist."""
    pools = limits.covering(resource, type_)
    rated = {pool.key for pool in pools if pool.limit.per_partition and pool.limit.rate is not None}

    heaviest = limits.heaviest(resource, type_)

    def with_room(rows: Sequence[Row]) -> list[Row]:
        if rated and rows:
            capacity.learn_rates(rates_of(tx, rated, {row[PARTITION] for row in rows}))
        used: Counter[str] = Counter()
        chosen = []
        for row in rows:
            if row[WEIGHT] > heaviest:
                continue
            partition = row[PARTITION]
            free = capacity.free_for_jobs(resource, type_, partition)
            if free is None or free > used[partition]:
                used[partition] += 1
                chosen.append(row)
        return chosen

    # With many places both are the same, and what was read would be read again.
    for count in dict.fromkeys((max(_FEW, 2 * places), max(WINDOW, 2 * places))):
        rows = first_of_lane(tx, resource, type_, count)
        chosen = with_room(rows)
        if len(chosen) >= places or len(rows) < count:
            return chosen
    heads = tx.rows(_HEADS[tx.dialect], resource=resource, type=type_, count=PARTITIONS_MAX, heaviest=heaviest)
    known = {row[ID] for row in rows}
    if rated:
        capacity.learn_rates(rates_of(tx, rated, {partition for _, partition in heads}))
    ids = [
        job_id
        for job_id, partition in heads
        if job_id not in known and capacity.free_for_jobs(resource, type_, partition) != 0
    ]
    further = locked(tx, ids)
    if all(row[PARTITION] for row in rows) and capacity.free_for_jobs(resource, type_, "") != 0:
        answers = tx.all_rows(*unnamed_queries(tx, resource, type_, DEPTH))
        plain = unnamed(tx, resource, type_, DEPTH, answers)[:places]
        further = sorted(
            [*further, *locked(tx, [row[ID] for row in plain])], key=lambda row: (-row[PRIORITY], *in_priority(row))
        )
    return with_room([*chosen, *further])
