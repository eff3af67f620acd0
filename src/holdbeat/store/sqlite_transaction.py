"""A Transaction over an apsw connection."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import apsw

from holdbeat.domain.clock import from_iso, iso
from holdbeat.domain.position import GAP
from holdbeat.store.statement import for_sqlite
from holdbeat.store.transaction import Row, StoreTerms, Transaction


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    raise TypeError(f"cannot hand {type(value).__name__} to SQLite")


def _value(value: Any) -> Any:
    return iso(value) if isinstance(value, datetime) else value


class SqliteTransaction(Transaction):
    dialect = "sqlite"

    def __init__(self, connection: apsw.Connection, now: datetime, terms: StoreTerms) -> None:
        super().__init__(now, terms)
        self.connection = connection

    def _run(self, text: str, params: dict[str, Any]) -> apsw.Cursor:
        statement = for_sqlite(text)
        for name, value in params.items():
            if isinstance(value, datetime):
                params[name] = iso(value)
            elif name in statement.lists or name in statement.tables:
                params[name] = json.dumps(list(value), default=_as_json, ensure_ascii=False)
        return self.connection.execute(statement.sql, params)

    def rows(self, sql: str, /, **params: Any) -> list[Row]:
        return self._run(sql, params).fetchall()

    def execute(self, sql: str, /, **params: Any) -> None:
        self._run(sql, params).fetchall()

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if not rows:
            return
        used = [index for index in range(len(columns)) if any(row[index] is not None for row in rows)]
        names = ", ".join(columns[index] for index in used)
        marks = ", ".join("?" * len(used))
        self.connection.executemany(
            f"INSERT INTO {table} ({names}) VALUES ({marks})",
            [[_value(row[index]) for index in used] for row in rows],
        )

    def time(self, value: Any) -> datetime | None:
        return None if value is None else from_iso(value)

    def next_fences(self, count: int) -> int:
        row = self.one(
            "UPDATE counters SET value = value + :count WHERE name = 'fence' RETURNING value", count=count
        )
        assert row is not None
        return int(row[0]) - count + 1

    def next_positions(self, counts: Mapping[int, int]) -> dict[int, list[int]]:
        places = {}
        for priority, count in counts.items():
            row = self.one(
                "INSERT INTO counters (name, value) VALUES (:name, :amount) "
                "ON CONFLICT (name) DO UPDATE SET value = value + :amount RETURNING value",
                name=f"position:{priority}",
                amount=count * GAP,
            )
            assert row is not None
            last = int(row[0])
            places[priority] = list(range(last - (count - 1) * GAP, last + 1, GAP))
        return places

    def lock_pools(self, names: Iterable[str]) -> None:
        """Nothing to do: whoever writes to a SQLite file is alone."""
