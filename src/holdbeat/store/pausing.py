"""The lock between claims and changes of pauses or limits: a change waits for claims under way (QUE-04, LIM-02)."""

from __future__ import annotations

from holdbeat.store.transaction import Transaction

EVERYTHING = "*"
"""The pause that covers all resources."""

_SHARED = "SELECT pg_advisory_xact_lock_shared(hashtextextended('pauses', 7450))"
_EXCLUSIVE = "SELECT pg_advisory_xact_lock(hashtextextended('pauses', 7450))"
"""On PostgreSQL claims share this lock; only a transaction that changes a pause or a limit takes it alone. SQLite has
one writer and needs no lock."""


def wait_for_claims(tx: Transaction) -> None:
    """Lets the claims under way end and others wait: none can start what it saw before this transaction's change."""
    if tx.dialect == "postgres":
        tx.execute(_EXCLUSIVE)


def wait_for_pauses(tx: Transaction) -> None:
    """Lets pauses under way end and others wait. Statements that follow see what was committed before."""
    if tx.dialect == "postgres":
        tx.execute(_SHARED)
