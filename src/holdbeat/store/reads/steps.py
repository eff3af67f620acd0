"""Reading the steps of a chain for explanations."""

from __future__ import annotations

from datetime import datetime

from holdbeat.store.transaction import Transaction


def last_step(tx: Transaction, root_id: str) -> tuple[str, datetime] | None:
    """The name of the last step that a chain has kept, and when; None if it has kept none."""
    row = tx.one(
        "SELECT name, kept_at FROM steps WHERE root_id = :id AND name NOT LIKE '$%' "
        "ORDER BY kept_at DESC, started_at DESC, name DESC LIMIT 1",
        id=root_id,
    )
    return None if row is None else (row[0], tx.instant(row[1]))
