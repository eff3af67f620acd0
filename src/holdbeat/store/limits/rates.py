"""The instants that rates go by: one row for each limit and partition in which something has started.

Guards LIM-05: a row is read and written only in a claim that has locked its limit, together with the leases of what it
starts, so rates hold exactly over all workers and restarts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from holdbeat.domain.capacity import Capacity, Place
from holdbeat.store.transaction import Transaction

_SELECT = "SELECT key, partition, due FROM rates"


def rates_of(tx: Transaction, keys: Collection[str], partitions: Collection[str] = ("",)) -> dict[Place, float]:
    """The kept instants of these pools in these partitions."""
    rows = tx.rows(
        f"{_SELECT} WHERE key IN :keys AND partition IN :partitions",
        keys=sorted(keys),
        partitions=sorted(partitions),
    )
    return {Place(row[0], row[1]): float(row[2]) for row in rows}


def rates_in_use(tx: Transaction) -> Mapping[Place, float]:
    """Every kept instant that lies ahead; the others permit a start and make no difference."""
    rows = tx.rows(f"{_SELECT} WHERE due > :now", now=tx.now.timestamp())
    return {Place(row[0], row[1]): float(row[2]) for row in rows}


def keep_rates(tx: Transaction, capacity: Capacity) -> None:
    """Writes what has started."""
    rows = capacity.rates_to_keep()
    if rows:
        tx.execute(
            "INSERT INTO rates (key, partition, due) "
            "SELECT r.key, r.partition, r.due FROM rows(:rows; key text, partition text, due real) AS r WHERE true "
            "ON CONFLICT (key, partition) DO UPDATE SET due = excluded.due",
            rows=rows,
        )


def instant_of(tx: Transaction, seconds: float) -> datetime:
    """An instant of a rate as a datetime, not earlier than it."""
    ahead = timedelta(seconds=seconds - tx.now.timestamp())
    return tx.now + ahead + timedelta(milliseconds=1)
