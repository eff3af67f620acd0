"""A Transaction over a psycopg connection in pipeline mode: what needs no answer travels with what follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

import psycopg

from holdbeat.store.statement import for_postgres
from holdbeat.store.transaction import Row, StoreTerms, Transaction

ColumnTypes = Mapping[str, Mapping[str, str]]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


class PostgresTransaction(Transaction):
    dialect = "postgres"

    def __init__(
        self, connection: psycopg.Connection[Row], now: datetime, terms: StoreTerms, types: ColumnTypes
    ) -> None:
        super().__init__(now, terms)
        self.connection = connection
        self._types = types

    def _run(self, text: str, params: dict[str, Any]) -> psycopg.Cursor[Row]:
        statement = for_postgres(text)
        for name, value in list(params.items()):
            if name in statement.tables:
                del params[name]
                columns = statement.tables[name]
                for index, column in enumerate(columns):
                    params[f"{name}__{column}"] = [_plain(row[index]) for row in value]
            elif isinstance(value, Enum):
                params[name] = value.value
            elif isinstance(value, tuple | set | frozenset | list):
                params[name] = [_plain(item) for item in value]
        return self.connection.execute(statement.sql, params or None)

    def rows(self, sql: str, /, **params: Any) -> list[Row]:
        return self._run(sql, params).fetchall()

    def execute(self, sql: str, /, **params: Any) -> None:
        self._run(sql, params)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if not rows:
            return
        types = self._types[table]
        used = [index for index in range(len(columns)) if any(row[index] is not None for row in rows)]
        names = ", ".join(columns[index] for index in used)
        arrays = ", ".join(f"%s::{types[columns[index]]}[]" for index in used)
        self.connection.execute(
            f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays})",
            [[_plain(row[index]) for row in rows] for index in used],
        )

    def time(self, value: Any) -> datetime | None:
        return value  # type: ignore[no-any-return]

    def next_fences(self, count: int) -> int:
        return int(self.rows("SELECT nextval('fences') FROM generate_series(1, :count)", count=count)[0][0])

    def next_positions(self, counts: Mapping[int, int]) -> dict[int, list[int]]:
        places: dict[int, list[int]] = {}
        for priority, count in counts.items():
            found = self.rows(
                f"SELECT nextval('positions_{priority:d}') FROM generate_series(1, :count)", count=count
            )
            places[priority] = [int(row[0]) for row in found]
        return places

    def lock_pools(self, names: Iterable[str]) -> None:
        ordered = sorted(names)
        if ordered:
            self.execute(
                "SELECT pg_advisory_xact_lock(k) FROM "
                "(SELECT hashtextextended(n, 7450) AS k FROM unnest(:names::text[]) AS n ORDER BY 1) AS keys",
                names=ordered,
            )
