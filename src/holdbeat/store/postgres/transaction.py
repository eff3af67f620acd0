"""A Transaction over a pipeline of statements: what needs no answer travels with what follows.

Whenever it waits for an answer the pipeline is synchronised, so that the server knows it to be idle in between and ends
the session of a process that stands still with its locks (`idle_in_transaction_session_timeout`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.string import TextLoader

from holdbeat.domain.attention import OpenReader
from holdbeat.domain.clock import iso
from holdbeat.store.postgres.open_reader import open_reader
from holdbeat.store.postgres.pipeline import Answer, StatementPipeline
from holdbeat.store.statement import columns_of, for_postgres
from holdbeat.store.transaction import Row, StoreTerms, Transaction

Sent = Answer | psycopg.Cursor[Row]
"""What was sent and has rows once it is answered."""
ColumnTypes = Mapping[str, Mapping[str, str]]


_written = lru_cache(maxsize=8192)(iso)


def plain(value: Any) -> Any:
    """A value as the driver takes it."""
    return value.value if isinstance(value, Enum) else value


def array(values: Sequence[Any]) -> Any:
    """A column as the text of a PostgreSQL array.

    The driver's own way goes through every element in Python and cost more than the server's work on them.
    """
    kinds = set(map(type, values))
    has_null = _NONE in kinds
    kinds.discard(_NONE)
    if not kinds:
        return f"{{{','.join(['NULL'] * len(values))}}}"
    if all(issubclass(kind, str) for kind in kinds):
        if has_null:
            return f"{{{','.join(['NULL' if v is None else _quoted([v]) for v in values])}}}"
        return f"{{{_quoted(values)}}}"
    if kinds == {int} and not has_null:
        return f"{{{','.join(map(str, values))}}}"
    if kinds == {bool}:
        return f"{{{','.join(['NULL' if v is None else 't' if v else 'f' for v in values])}}}"
    if all(issubclass(kind, int | float) for kind in kinds):
        return f"{{{','.join(['NULL' if v is None else repr(plain(v)) for v in values])}}}"
    if all(issubclass(kind, datetime) for kind in kinds):
        return f"{{{','.join(['NULL' if v is None else _written(v) for v in values])}}}"
    return [plain(value) for value in values]


_NONE = type(None)


def _quoted(texts: Sequence[str]) -> str:
    """Texts as elements of an array. They are escaped all at once, with NUL between them."""
    joined = "\0".join(texts)
    if joined.count("\0") != len(texts) - 1:
        raise psycopg.DataError("PostgreSQL text cannot contain NUL (0x00) bytes")
    if '"' in joined or "\\" in joined:
        joined = joined.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + joined.replace("\0", '","') + '"'


@lru_cache(maxsize=512)
def _insertion(table: str, names: tuple[str, ...], types: tuple[str, ...]) -> str:
    """An INSERT of one row."""
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join([f'%s::{type_}' for type_ in types])})"


def bound(text: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A statement as PostgreSQL wants it, with its values as the driver takes them."""
    statement = for_postgres(text)
    constants: dict[str, Any] = {}
    for name, columns in statement.tables.items():
        rows = params.pop(name)
        if len(rows) == 1:
            constants |= {f"{name}__{column}": value for (column, _), value in zip(columns, rows[0], strict=True)}
            continue
        fixed, varied = columns_of(name, columns, rows)
        constants |= fixed
        params.update((column, array(values)) for column, values in varied.items())
    for name in statement.lists:
        if len(params[name]) == 1:
            (constants[name],) = params[name]
    if constants:
        params.update(constants)
        statement = for_postgres(text, frozenset(constants))
    for name, value in params.items():
        if isinstance(value, Enum):
            params[name] = value.value
        elif isinstance(value, tuple | set | frozenset | list):
            params[name] = array(list(value)) if name in statement.lists else [plain(item) for item in value]
    return statement.sql, params


def for_table(text: str) -> tuple[str, str, tuple[str, ...]]:
    """A statement whose only list is a table: for many rows, whose columns are arrays whatever they hold, and for one;
    and the names of the columns. The server prepares each of the two once."""
    many = for_postgres(text)
    ((name, columns),) = many.tables.items()
    names = tuple(f"{name}__{column}" for column, _ in columns)
    return many.sql, for_postgres(text, frozenset(names)).sql, names


INSERTED = " RETURNING 1"
"""Makes an INSERT answer one row for each that it has inserted."""
OPENING = "SELECT clock_timestamp(), pg_current_xact_id()::text"
"""The first question of every transaction that writes."""


class PostgresTransaction(Transaction):
    dialect = "postgres"

    def __init__(
        self,
        connection: psycopg.Connection[Row],
        now: datetime | None,
        terms: StoreTerms,
        types: ColumnTypes,
        pipeline: StatementPipeline | None = None,
        begun: Callable[[Row], datetime] | None = None,
    ) -> None:
        super().__init__(now, terms)
        self.connection = connection
        self._types = types
        self._pipeline = pipeline
        self._begun = begun
        """Takes the clock and the id of the transaction from the answer to OPENING. That is sent together with the
        first statement, and read when an answer is waited for."""
        self._opening: Sent | None = None
        self._expected: Mapping[int, int] = {}
        """How many positions of each priority come with the answer to the opening."""
        self._drawn: dict[int, Sent] = {}
        self._positions: dict[int, list[int]] = {}
        """Positions that came with the opening and are not used yet."""

    def _begun_at(self) -> datetime:
        self._open()
        self._synchronise()
        assert self._now is not None
        return self._now

    def _open(self) -> None:
        if self._begun is not None and self._opening is None:
            single = next(iter(self._expected), None) if list(self._expected.values()) == [1] else None
            text = OPENING if single is None else f"{OPENING}, nextval('positions_{single:d}')"
            self._opening = self._send(text, None)
            if single is None:
                self._drawn = self._draw_positions(self._expected)

    def _run(self, text: str, params: dict[str, Any]) -> Sent:
        sql, values = bound(text, params)
        return self._execute(sql, values or None)

    def _execute(self, sql: str, params: dict[str, Any] | list[Any] | None) -> Sent:
        self._open()
        return self._send(sql, params)

    def _send(self, sql: str, params: dict[str, Any] | list[Any] | None) -> Sent:
        assert self._pipeline is not None
        return self._pipeline.send(sql, params)

    def rows(self, sql: str, /, **params: Any) -> list[Row]:
        sent = self._run(sql, params)
        self._synchronise()
        return sent.fetchall()

    def all_rows(self, *queries: tuple[str, dict[str, Any]]) -> list[list[Row]]:
        sent = [self._run(sql, dict(params)) for sql, params in queries]
        self._synchronise()
        return [cursor.fetchall() for cursor in sent]

    def _synchronise(self) -> None:
        if self._pipeline is not None:
            self._pipeline.sync()
        if self._now is None and self._begun is not None:
            assert self._opening is not None
            row = self._opening.fetchone()
            assert row is not None
            self._now = self._begun(row)
            if len(row) > 2:
                self._positions = {priority: [row[2]] for priority in self._expected}
            else:
                self._positions = {
                    priority: [place for (place,) in cursor.fetchall()] for priority, cursor in self._drawn.items()
                }

    def execute(self, sql: str, /, **params: Any) -> None:
        self._run(sql, params)

    def insert_from(self, sql: str, entries: Sequence[Row], /, **params: Any) -> int:
        return len(self.rows(f"{sql}{INSERTED}", entries=entries, **params))

    def insert_columns(self, table: str, shared: Mapping[str, Any], varied: Mapping[str, Sequence[Any]]) -> None:
        types = self._types[table]
        fixed = {name: plain(value) for name, value in shared.items() if value is not None}
        chosen = [*varied, *(f"%({name})s::{types[name]}" for name in fixed)]
        arrays = ", ".join([f"%({name})s::{types[name]}[]" for name in varied])
        self._execute(
            f"INSERT INTO {table} ({', '.join([*varied, *fixed])}) SELECT {', '.join(chosen)} "
            f"FROM unnest({arrays}) AS given({', '.join(varied)})",
            fixed | {name: array(values) for name, values in varied.items()},
        )

    def _insert_one(self, table: str, columns: Sequence[str], row: Sequence[Any]) -> None:
        names = tuple([name for name, value in zip(columns, row, strict=True) if value is not None])
        types = self._types[table]
        text = _insertion(table, names, tuple([types[name] for name in names]))
        self._execute(text, [plain(value) for value in row if value is not None])

    def time(self, value: Any) -> datetime | None:
        return value  # type: ignore[no-any-return]

    def next_fences(self, count: int) -> int:
        while True:
            rows = self.rows("SELECT nextval('fences') FROM generate_series(1, :count)", count=count)
            # Another claim may draw from the sequence in between; then these are given up for an unbroken row.
            if rows[-1][0] - rows[0][0] == count - 1:
                return int(rows[0][0])

    def next_positions(self, counts: Mapping[int, int]) -> dict[int, list[int]]:
        if self._now is None:
            self._begun_at()
        places, self._positions = self._positions, {}
        missing = {priority: count - len(places.get(priority, ())) for priority, count in counts.items()}
        drawn = self._draw_positions({priority: count for priority, count in missing.items() if count > 0})
        if drawn:
            self._synchronise()
        for priority, sent in drawn.items():
            places.setdefault(priority, []).extend([row[0] for row in sent.fetchall()])
        return places

    def expect_positions(self, counts: Mapping[int, int]) -> None:
        if self._opening is None and self._begun is not None:
            self._expected = counts

    def _draw_positions(self, counts: Mapping[int, int]) -> dict[int, Sent]:
        drawn = {}
        for priority, count in counts.items():
            sql = f"SELECT nextval('positions_{priority:d}')"
            drawn[priority] = (
                self._execute(sql, None)
                if count == 1
                else self._run(f"{sql} FROM generate_series(1, :count)", {"count": count})
            )
        return drawn

    def insert_event_batch(self, columns: Sequence[str], row: Row) -> None:
        # The sequence goes in steps of the largest batch, so that the ids before the next one are nobody's.
        self.insert("events", columns, [row])

    def lock_pools(self, names: Iterable[str]) -> None:
        ordered = sorted(names)
        if ordered:
            self.execute(
                "SELECT pg_advisory_xact_lock(k) FROM "
                "(SELECT hashtextextended(n, 7450) AS k FROM unnest(:names::text[]) AS n ORDER BY 1) AS keys",
                names=ordered,
            )

    def open_reader(self) -> OpenReader | None:
        return open_reader(self)


class JoinedPostgresTransaction(PostgresTransaction):
    """Inside a caller's transaction: rows are read our way, whatever row factory and loaders the connection has."""

    def _send(self, sql: str, params: dict[str, Any] | list[Any] | None) -> psycopg.Cursor[Row]:
        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        cursor.adapters.register_loader("json", TextLoader)
        # Whether a pooler is in between, where a prepared statement may be gone, is the caller's business.
        return cursor.execute(sql, params, prepare=False)
