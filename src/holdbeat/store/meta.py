"""The table `meta`: single values that belong to the store as a whole."""

from __future__ import annotations

from holdbeat.store.transaction import Transaction


def read_meta(tx: Transaction, key: str) -> str | None:
    row = tx.one("SELECT value FROM meta WHERE key = :key", key=key)
    return None if row is None else str(row[0])


def write_meta(tx: Transaction, key: str, value: str) -> None:
    tx.execute(
        "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key=key,
        value=value,
    )


def write_meta_once(tx: Transaction, key: str, value: str) -> str:
    """Writes the value unless there is one; returns the one that is there now."""
    tx.execute("INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING", key=key, value=value)
    present = read_meta(tx, key)
    assert present is not None
    return present
