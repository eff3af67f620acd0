"""Sessions on PostgreSQL whose process stands still with its locks.

Guards CAP-02 against a frozen process: one that stopped between two answers is ended by the server itself, which sees
that it idles. One that stopped in the middle of a burst of statements looks busy to the server for ever; the others end
it after the same time.
"""

from __future__ import annotations

from holdbeat.store.transaction import Transaction

STANDSTILL_S = 30.0
APPLICATION = "holdbeat"


def end_standing_sessions(tx: Transaction, *, after_s: float = STANDSTILL_S) -> int:
    """Ends sessions of this user that have waited so long for the rest of what their process had to say.

    Their transactions are undone. Returns how many were ended; none where the store has no sessions.
    """
    if tx.dialect != "postgres":
        return 0
    ended = tx.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND usename = current_user AND application_name = :application AND pid <> pg_backend_pid() "
        "AND state = 'active' AND wait_event = 'ClientRead' AND xact_start IS NOT NULL "
        "AND state_change < clock_timestamp() - make_interval(secs => :after_s)",
        application=APPLICATION,
        after_s=float(after_s),
    )
    return len(ended)
