"""The live leases, counted: what limits go by (CAP-01)."""

from __future__ import annotations

from holdbeat.domain.capacity import Usage
from holdbeat.store.transaction import Transaction


def usage(tx: Transaction, *, by_partition: bool = True) -> list[Usage]:
    """How many leases there are of each resource and type, and of each partition if a limit counts by it."""
    if by_partition:
        rows = tx.rows("SELECT resource, type, count(*), partition FROM leases GROUP BY resource, type, partition")
    else:
        rows = tx.rows("SELECT resource, type, count(*) FROM leases GROUP BY resource, type")
    return [Usage(*row) for row in rows]
