"""The table of single facts about a store: a key and a text each."""

from __future__ import annotations

from holdbeat.store.transaction import Transaction


def recall(tx: Transaction, key: str, *, lock: bool = False) -> str | None:
    """The text under a key; with `lock`, nobody else changes it before this transaction has ended."""
    row = tx.one(f"SELECT value FROM meta WHERE key = :key{' FOR UPDATE' if lock else ''}", key=key)
    return None if row is None else str(row[0])


def remember(tx: Transaction, key: str, value: str) -> None:
    """Puts a text under a key, in the place of another."""
    tx.execute(
        "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key=key,
        value=value,
    )


def remember_first(tx: Transaction, key: str, value: str) -> None:
    """Puts a text under a key unless there is one."""
    tx.execute("INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING", key=key, value=value)


def count_up(tx: Transaction, key: str) -> None:
    """Adds one to the number under a key."""
    tx.execute(
        "INSERT INTO meta (key, value) VALUES (:key, '1') "
        "ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS integer) + 1 AS text)",
        key=key,
    )
