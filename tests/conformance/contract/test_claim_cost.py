"""What a claim reads: as much with many partitions and limits as with few."""

from __future__ import annotations

import pytest

from holdbeat.domain.job import NewJob
from holdbeat.domain.limit import Limit
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.changes import declare_limits
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.sqlite.transaction import SqliteTransaction
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import OpenStore, change, complete, enqueue_all

FEW, MANY = 50, 10_000
KINDS = {
    "fair": Limit("api", resource="api", slots=4, fair=True),
    "per partition": Limit("api", resource="api", slots=4, per_partition=True),
    "both": Limit("api", resource="api", slots=1, per_partition=True, fair=True),
}


def _claim_and_count(tx: Transaction, vacancy: Vacancy) -> tuple[list[object], int]:
    """What a claim hands out, and how much the engine did for it: steps of SQLite's machine, rows of PostgreSQL."""
    if isinstance(tx, SqliteTransaction):
        connection = tx.connection
        steps = 0

        def step() -> bool:
            nonlocal steps
            steps += 1
            return False

        connection.set_progress_handler(step, 1)
        try:
            return [*claim(tx, vacancy)], steps
        finally:
            connection.set_progress_handler(None)
    rows = "SELECT sum(coalesce(idx_tup_fetch, 0) + seq_tup_read) FROM pg_stat_xact_user_tables"
    before = tx.rows(rows)[0][0]
    claims = claim(tx, vacancy)
    return [*claims], int(tx.rows(rows)[0][0] - before)


def cost(store: PersistenceAdapter) -> int:
    """The most that one of a few claims in a row costs, after the first."""
    costs = []
    for _ in range(5):
        claims, count = store.write_sync(_claim_and_count, Vacancy("w", range(2), types=("a",)))
        assert len(claims) == 2
        costs.append(count)
        for item in claims:
            complete(store, item)  # type: ignore[arg-type]
    return max(costs[1:])


def fill(store: PersistenceAdapter, partitions: int) -> None:
    jobs = [NewJob("a", resource="api", partition=f"p{number % partitions:06}") for number in range(MANY)]
    enqueue_all(store, jobs)


def empty(store: PersistenceAdapter) -> None:
    def cancel_all(tx: Transaction) -> None:
        tx.execute("UPDATE jobs SET status = 'CANCELLED', finished_at = :now WHERE status = 'QUEUED'", now=tx.now)

    store.write_sync(cancel_all)


@pytest.mark.rule("LIM-07", "LIM-04")
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_partitions_cost_a_claim_as_much_as_fifty(open_store: OpenStore, kind: str) -> None:
    store = open_store("unlimited")
    store.write_sync(declare_limits, (), [KINDS[kind]], by="w")
    costs = []
    for partitions in (FEW, MANY):
        fill(store, partitions)
        costs.append(cost(store))
        empty(store)
    few, many = costs
    assert many <= 1.5 * few, costs
    # Not even before the first ANALYZE are all jobs of a lane read.
    assert few < MANY / 2, costs


@pytest.mark.rule("INV-004", "LIM-07")
@pytest.mark.parametrize("kind", [*KINDS, "no limit"])
def test_statistics_of_an_empty_queue_do_not_make_claims_read_the_queue_that_comes(
    open_store: OpenStore, kind: str
) -> None:
    store = open_store("unlimited")
    if kind in KINDS:
        store.write_sync(declare_limits, (), [KINDS[kind]], by="w")
    fill(store, FEW)
    empty(store)
    change(store, "ANALYZE")
    fill(store, MANY)
    claims, count = store.write_sync(_claim_and_count, Vacancy("w", range(2), types=("a",)))
    assert len(claims) == 2
    assert count < MANY


@pytest.mark.rule("LIM-07", "LIM-01")
def test_two_hundred_limits_cost_a_claim_as_much_as_one(open_store: OpenStore) -> None:
    limit = Limit("api", resource="api", slots=4)
    store = open_store("unlimited")
    store.write_sync(declare_limits, (), [limit], by="w")
    fill(store, 1)
    before = cost(store)
    more = [Limit(f"other-{number}", resource=f"other-{number}", slots=1) for number in range(200)]
    store.write_sync(declare_limits, (), [limit, *more], by="w")
    assert cost(store) <= 1.1 * before
