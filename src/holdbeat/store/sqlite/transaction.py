"""A Transaction over an apsw connection."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any

import apsw

from holdbeat.domain.attention import OpenReader
from holdbeat.domain.clock import from_iso, iso
from holdbeat.domain.position import GAP
from holdbeat.store.event_batches import EVENT_COLUMNS
from holdbeat.store.sqlite import log_growth
from holdbeat.store.statement import columns_of, for_sqlite, from_values
from holdbeat.store.transaction import Row, StoreTerms, Transaction

_instant = lru_cache(maxsize=8192)(from_iso)
_written = lru_cache(maxsize=8192)(iso)
"""The rows of one batch share a few instants; reading and writing each of them anew was a fifth of a claim."""


def bound(value: Any) -> Any:
    """A value in the form in which SQLite keeps it."""
    return _written(value) if isinstance(value, datetime) else value


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return _written(value)
    raise TypeError(f"cannot hand {type(value).__name__} to SQLite")


_make_chunks = getattr(json.encoder, "c_make_encoder", None)
_chunks = _make_chunks and _make_chunks(
    None, _as_json, json.encoder.encode_basestring, None, ":", ",", False, False, False
)


def _json(values: list[Any]) -> str:
    """A list of values as the one parameter that json_each takes apart."""
    return "".join(_chunks(values, 0)) if _chunks else json.dumps(values, default=_as_json, ensure_ascii=False)


_CHUNKS = (64, 32, 16, 8, 4, 2, 1)
"""Rows of one INSERT. A statement for each row took half as long again, and gave the interpreter's lock away each
time: a busy thread beside it then made the writer wait for every single row."""


@lru_cache(maxsize=512)
def _insertion(table: str, fixed: tuple[str, ...], varied: tuple[str, ...], count: int) -> str:
    """An INSERT of so many rows, whose first parameters are the values that all of them share."""
    shared = [f"?{number}" for number in range(1, len(fixed) + 1)]
    rows = []
    for row in range(count):
        first = len(fixed) + row * len(varied) + 1
        rows.append(f"({', '.join([*shared, *(f'?{number}' for number in range(first, first + len(varied)))])})")
    return f"INSERT INTO {table} ({', '.join(fixed + varied)}) VALUES {', '.join(rows)}"


LAST_EVENT_ID = "coalesce((SELECT max(id) FROM events), (SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)"
"""The id of the newest Event, or one above it if the log was emptied."""
RESERVED_EVENT_IDS = 1000


@lru_cache(maxsize=8)
def _event_batch_insertion(columns: tuple[str, ...]) -> str:
    """An INSERT of one row of the log that takes as many ids as it holds Events: the first parameter."""
    marks = ", ".join(["?"] * len(columns))
    # VALUES: what an INSERT selects with a look at its own table, SQLite first writes into one beside it.
    return f"INSERT INTO events (id, {', '.join(columns)}) VALUES ({LAST_EVENT_ID} + ?, {marks})"


class SqliteTransaction(Transaction):
    dialect = "sqlite"

    def __init__(self, connection: apsw.Connection, now: datetime, terms: StoreTerms) -> None:
        super().__init__(now, terms)
        self.connection = connection

    def _run(self, text: str, params: dict[str, Any]) -> apsw.Cursor:
        statement = for_sqlite(text)
        constants: dict[str, Any] = {}
        for name in statement.tables:
            fixed, varied = columns_of(name, statement.tables[name], params[name])
            constants |= fixed
            columns = list(varied.values())
            params[name] = list(columns[0]) if len(columns) == 1 else list(zip(*columns, strict=True))
        if constants:
            params.update(constants)
            statement = for_sqlite(text, frozenset(constants))
        for name, value in params.items():
            if isinstance(value, datetime):
                params[name] = _written(value)
            elif name in statement.tables or name in statement.lists:
                params[name] = _json(value if isinstance(value, list) else list(value))
        return self.connection.execute(statement.sql, params)

    def rows(self, sql: str, /, **params: Any) -> list[Row]:
        return self._run(sql, params).fetchall()

    def execute(self, sql: str, /, **params: Any) -> None:
        self._run(sql, params).fetchall()

    def insert_columns(self, table: str, shared: Mapping[str, Any], varied: Mapping[str, Sequence[Any]]) -> None:
        fixed = {name: bound(value) for name, value in shared.items() if value is not None}
        names, width = tuple(varied), len(varied)
        count = len(varied[names[0]])
        values: list[Any] = [None] * (count * width)
        for number, column in enumerate(varied.values()):
            known = column[0] if column[0] is not None else next((v for v in column if v is not None), None)
            values[number::width] = [bound(value) for value in column] if isinstance(known, datetime) else column
        done = 0
        for size in _CHUNKS:
            while count - done >= size:
                text = _insertion(table, tuple(fixed), names, size)
                self.connection.execute(text, (*fixed.values(), *values[done * width : (done + size) * width]))
                done += size

    def insert_from(self, sql: str, entries: Sequence[Row], /, **params: Any) -> int:
        names, shared = tuple(params), [bound(value) for value in params.values()]
        inserted = done = 0
        for size in _CHUNKS:
            while len(entries) - done >= size:
                text, width, instants = from_values(sql, names, size)
                values = shared + list(chain.from_iterable(entries[done : done + size]))
                for column in instants:
                    first = len(shared) + column
                    values[first::width] = map(_written, values[first::width])
                self.connection.execute(text, values)
                inserted += self.connection.changes()
                done += size
        return inserted

    def _insert_one(self, table: str, columns: Sequence[str], row: Sequence[Any]) -> None:
        """A single row has no columns to compare; looking at them as columns took a fifth of a single enqueue."""
        names = tuple([name for name, value in zip(columns, row, strict=True) if value is not None])
        values = [bound(value) for value in row if value is not None]
        self.connection.execute(_insertion(table, names, (), 1), values)

    def time(self, value: Any) -> datetime | None:
        return None if value is None else _instant(value)

    def next_fences(self, count: int) -> int:
        row = self.one("UPDATE counters SET value = value + :count WHERE name = 'fence' RETURNING value", count=count)
        assert row is not None
        return int(row[0]) - count + 1

    def next_positions(self, counts: Mapping[int, int]) -> dict[int, list[int]]:
        """Positions go by the ids of the Events that tell of them: a counter would be one more page of each commit."""
        last = (self.last_event_id() + len(self.events)) * GAP
        places = {}
        for priority, count in counts.items():
            first, last = last + GAP, last + count * GAP
            places[priority] = list(range(first, last + 1, GAP))
        return places

    def last_event_id(self) -> int:
        return self.count(f"SELECT {LAST_EVENT_ID}")

    def insert_events(self, rows: Sequence[Row]) -> None:
        last = self.last_event_id()
        self.insert("events", ("id", *EVENT_COLUMNS), [(last + number, *row) for number, row in enumerate(rows, 1)])
        self.event_ids_used(last, last + len(rows))

    def insert_event_batch(self, columns: Sequence[str], row: Row) -> None:
        count = int(row[columns.index("count")])
        self.connection.execute(_event_batch_insertion(tuple(columns)), (count, *map(bound, row)))
        newest = self.connection.last_insert_rowid()
        self.event_ids_used(newest - count, newest)

    def event_ids_used(self, last: int, newest: int) -> None:
        """Called after Events up to `newest` were inserted behind `last`: reserves further ids where they are used up.

        SQLite writes down the highest id of the table, so that none is given out twice, even if it is deleted. A note
        that is ahead of the ids need not be written with each commit.
        """
        block = (newest - 1) // RESERVED_EVENT_IDS
        if (last - 1) // RESERVED_EVENT_IDS != block:
            reserved = (block + 1) * RESERVED_EVENT_IDS
            self.connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'events'", (reserved,))

    def open_reader(self) -> OpenReader | None:
        path = self.connection.db_filename("main")
        return log_growth.open_reader(path) if path else None

    def lock_pools(self, names: Iterable[str]) -> None:
        """Nothing to do: whoever writes to a SQLite file is alone."""
