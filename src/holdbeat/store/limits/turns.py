"""Turns of fair limits: one row for each limit whose partitions take turns (LIM-07)."""

from __future__ import annotations

from collections.abc import Sequence

from holdbeat.domain.limit import Limits, Pool
from holdbeat.domain.turns import Turn
from holdbeat.store.transaction import Row, Transaction

TURN = "SELECT partition, taken FROM turns WHERE key = :key"


def fair_pool(limits: Limits, resource: str, type_: str) -> Pool | None:
    """By which limit the partitions of a lane take turns; None if none that covers it is fair."""
    return next((pool for pool in limits.covering(resource, type_) if pool.limit.fair), None)


def turn_of(tx: Transaction, pool: Pool, rows: Sequence[Row] | None = None) -> Turn:
    """The turns of a pool, from its row if that was read already."""
    if rows is None:
        rows = tx.rows(TURN, key=pool.key)
    last, in_a_row = rows[0] if rows else ("", 0)
    return Turn(last, in_a_row, pool.limit.weights or {})


def keep_turn(tx: Transaction, pool_key: str, last: str, taken: int) -> None:
    tx.execute(
        "INSERT INTO turns (key, partition, taken) VALUES (:key, :partition, :taken) "
        "ON CONFLICT (key) DO UPDATE SET partition = excluded.partition, taken = excluded.taken",
        key=pool_key,
        partition=last,
        taken=taken,
    )
