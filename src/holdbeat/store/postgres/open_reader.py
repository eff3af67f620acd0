"""Transactions on PostgreSQL that stay open, and what they cost.

PostgreSQL keeps every row that an open transaction could still see: those of all jobs and leases since it began.
"""

from __future__ import annotations

from holdbeat.domain.attention import OpenReader
from holdbeat.store.transaction import Transaction

OLD_S = 300.0
"""A transaction that has been open for longer is named."""
NAMED = 3

_OPEN = (
    "SELECT pid, usename, application_name, host(client_addr), state, "
    "extract(epoch FROM clock_timestamp() - xact_start)::float8 "
    "FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' "
    "AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid() "
    "AND xact_start < clock_timestamp() - make_interval(secs => :old_s) ORDER BY xact_start LIMIT :named"
)


_HIDDEN = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = '<insufficient privilege>'"
)


def hidden_sessions(tx: Transaction) -> int:
    """How many sessions of other users are on this database whose transactions this role may not see."""
    return int(tx.rows(_HIDDEN)[0][0]) if tx.dialect == "postgres" else 0


def open_reader(tx: Transaction) -> OpenReader | None:
    """The oldest transactions of this database, if they are old. A role sees those of others only as pg_monitor."""
    rows = tx.rows(_OPEN, old_s=OLD_S, named=NAMED)
    if not rows:
        return None
    sessions = []
    for pid, user, application, address, state, open_s in rows:
        program = f"{application} of {user}" if application else str(user)
        host = f" at {address}" if address else ""
        sessions.append(f"process {pid} ({program}{host}, {state}) for {open_s / 60:.0f} min")
    return OpenReader(
        f"Transactions on this database stay open: {'; '.join(sessions)}. Until they end PostgreSQL keeps the rows of "
        "all jobs that have started since, and its tables grow.",
        "Wait for a backup; end anything else, with SELECT pg_terminate_backend(pid) if its program does not.",
    )
