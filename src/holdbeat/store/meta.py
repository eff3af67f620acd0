"""The meta table: single facts about a store, a text under a key each. A move to PostgreSQL writes it, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdbeat.store.transaction import Transaction


def get(tx: Transaction, key: str, *, lock: bool = False) -> str | None:
    """The text under a key; with `lock`, nobody else changes it before this transaction has ended."""
    row = tx.one(f"SELECT value FROM meta WHERE key = :key{' FOR UPDATE' if lock else ''}", key=key)
    return None if row is None else str(row[0])


def get_many(tx: Transaction, keys: Sequence[str]) -> dict[str, str]:
    """The texts under these keys; keys without one are left out."""
    return dict(tx.rows("SELECT key, value FROM meta WHERE key IN :keys", keys=list(keys)))


def get_prefix(tx: Transaction, prefix: str) -> dict[str, str]:
    """The texts under all keys that begin like this, in the order of the keys."""
    after = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    rows = tx.rows(
        "SELECT key, value FROM meta WHERE key >= :prefix AND key < :after ORDER BY key", prefix=prefix, after=after
    )
    return dict(rows)


def put(tx: Transaction, key: str, value: str) -> None:
    """Puts a text under a key, in the place of another."""
    tx.execute(
        "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key=key,
        value=value,
    )


def put_if_absent(tx: Transaction, key: str, value: str) -> None:
    """Puts a text under a key unless there is one."""
    tx.execute("INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING", key=key, value=value)


def add(tx: Transaction, key: str, number: int) -> None:
    """Adds to the number under a key, which begins at 0."""
    tx.execute(
        "INSERT INTO meta (key, value) VALUES (:key, :text) "
        "ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS bigint) + :number AS text)",
        key=key,
        text=str(number),
        number=number,
    )


def delete(tx: Transaction, keys: Sequence[str]) -> None:
    tx.execute("DELETE FROM meta WHERE key IN :keys", keys=list(keys))
