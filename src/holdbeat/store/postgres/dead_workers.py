"""Workers on this machine whose processes are certainly gone.

Guards LEASE-05 on PostgreSQL: only what this machine's kernel says of its own processes counts; for all other workers
the lease decides.
"""

from __future__ import annotations

from holdbeat.store.process_identity import is_gone, this_process
from holdbeat.store.transaction import Transaction


def dead_workers(tx: Transaction) -> frozenset[str]:
    """Workers that have not recorded their end and whose processes are gone."""
    own = this_process()
    if own is None:
        return frozenset()
    rows = tx.rows(
        "SELECT id, pid, process_started FROM workers WHERE stopped_at IS NULL AND machine = :machine",
        machine=own.machine,
    )
    return frozenset(worker_id for worker_id, pid, started in rows if is_gone(pid, started))
