"""Moving a store from SQLite to PostgreSQL with everything in it.

Guards MOV-01: every row of every table of ours is copied under its own id. A batch is one transaction with the note of
how far it came, so an interrupted move goes on where it stopped; nobody can write to the source meanwhile; and in the
end both stores are read once more, row by row, and must be the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import apsw
import psycopg
from psycopg import sql

from holdbeat.domain.clock import iso
from holdbeat.domain.errors import Conflict, StoreBusy, StoreDown, StoreRefused
from holdbeat.domain.position import GAP
from holdbeat.schemas.field_bounds import PRIORITY_MAX
from holdbeat.store.maintenance.move_artifacts import Artifacts
from holdbeat.store.postgres.database import connect as connect_postgres
from holdbeat.store.sqlite.errors import translated
from holdbeat.store.sqlite.file import MEMORY, migrate
from holdbeat.store.sqlite.file import connect as connect_sqlite
from holdbeat.store.sqlite.processes import WorkerLocks
from holdbeat.store.sqlite.transaction import LAST_EVENT_ID

BATCH = 2000
_NOT_MOVED = ("schema_migrations", "counters")
"""Every engine has its own of these; the counters become sequences."""
_MARK = "move."
_ORIGIN = "move.origin"

Progress = Callable[[str, int, int], None]
"""Called with a table, how many of its rows are done, and how many it has."""


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    """The types of the columns at the target."""
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MovedTable:
    name: str
    rows: int
    checksum: str


class CopyDiffers(StoreRefused):
    """The target does not hold what the source holds."""

    default_code = "copy_differs"


def move_store(
    source: str, target: str, *, artifacts: Artifacts, batch: int = BATCH, progress: Progress = lambda *_: None
) -> list[MovedTable]:
    """Copies the file `source` into the empty, migrated database `target`, or goes on with a copy begun before."""
    source = str(Path(source).resolve())
    try:
        with contextlib.closing(connect_sqlite(source)) as origin, contextlib.closing(connect_postgres(target)) as goal:
            goal.execute("SET statement_timeout = 0")
            goal.execute("SET idle_in_transaction_session_timeout = 0")
            _hold_still(origin, source)
            move = _Move(origin, goal, _tables(origin, goal), artifacts, batch, progress)
            is_resumed = _begin(origin, goal, move.tables, source)
            try:
                return move.run()
            except CopyDiffers:
                if not is_resumed:
                    raise
            # Something changed in the source that leaves no Event, such as the last use of a key: copy all of it anew.
            _empty(goal, move.tables, _fingerprint(origin, source))
            return move.run()
    except apsw.Error as error:
        raise translated(error, source) from error
    except psycopg.Error as error:
        kind = StoreDown if isinstance(error, psycopg.OperationalError) else StoreRefused
        reason = " ".join(str(error).split())
        raise kind(
            f"The target database ended the copy ({reason}). The source is as it was. Mend what the database names, "
            "then move again: the copy goes on where it stopped."
        ) from error


@dataclass(frozen=True, slots=True)
class _Move:
    origin: apsw.Connection
    goal: psycopg.Connection[Any]
    tables: Sequence[Table]
    artifacts: Artifacts
    batch: int
    progress: Progress

    def run(self) -> list[MovedTable]:
        for table in self.tables:
            self._copy(table)
        self._set_sequences()
        moved = [self._compare(table) for table in self.tables]
        self.goal.execute("DELETE FROM meta WHERE key LIKE 'move.%'")
        return moved

    # --- copying ------------------------------------------------------------------------------------------

    def _copy(self, table: Table) -> None:
        goal = self.goal
        mark = f"{_MARK}{table.name}"
        mark_row = goal.execute("SELECT value FROM meta WHERE key = %s", [mark]).fetchone()
        reached: dict[str, Any] = json.loads(mark_row[0]) if mark_row else {"place": None, "rows": 0}
        place, done = reached["place"], reached["rows"]
        total = int(str(self.origin.execute(f"SELECT count(*) FROM {table.name}").fetchall()[0][0]))
        self.progress(table.name, done, total)
        at = [table.columns.index(name) for name in table.key]
        names = sql.SQL(", ").join(map(sql.Identifier, table.columns))
        command = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), names)
        while rows := self._batch(table, place):
            place = [rows[-1][index] for index in at]
            done += len(rows)
            with goal.transaction():
                with goal.cursor().copy(command) as stream:
                    for row in rows:
                        moved = self.artifacts.moved(table.name, table.columns, row)
                        # SQLite has numbers for truth values.
                        typed = zip(table.kinds, moved, strict=True)
                        stream.write_row([bool(v) if kind == "bool" and v is not None else v for kind, v in typed])
                goal.execute(
                    "INSERT INTO meta (key, value) VALUES (%s, %s) "
                    "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                    [mark, json.dumps({"place": place, "rows": done})],
                )
            self.progress(table.name, done, total)

    def _batch(self, table: Table, place: Any) -> list[tuple[Any, ...]]:
        key = ", ".join(table.key)
        where = f"WHERE ({key}) > ({', '.join('?' * len(table.key))})" if place is not None else ""
        statement = f"SELECT {', '.join(table.columns)} FROM {table.name} {where} ORDER BY {key} LIMIT {self.batch}"
        return self.origin.execute(statement, place or ()).fetchall()

    def _set_sequences(self) -> None:
        """The counters go on where they were: fences, positions, ids of Events."""
        origin, goal = self.origin, self.goal
        (fence,) = origin.execute("SELECT value FROM counters WHERE name = 'fence'").fetchall()[0]
        if fence:
            goal.execute("SELECT setval('fences', %s)", [fence])
        (last,) = origin.execute(f"SELECT {LAST_EVENT_ID}").fetchall()[0]
        if last:
            goal.execute("SELECT setval(pg_get_serial_sequence('events', 'id'), %s)", [last])
            # In the file, positions go by the ids of Events.
            goal.execute(
                "SELECT setval(format('positions_%%s', priority)::regclass, %s) "
                "FROM generate_series(0, %s) AS priority",
                [int(str(last)) * GAP, PRIORITY_MAX],
            )

    # --- comparing ----------------------------------------------------------------------------------------

    def _compare(self, table: Table) -> MovedTable:
        """Reads both sides in the order of their keys; the first row that differs ends the move."""
        digest = hashlib.sha256()
        count = 0
        in_order = f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {', '.join(table.key)}"
        with contextlib.closing(self._rows_of_target(table)) as copies:
            for row in self.origin.execute(in_order):
                original = [_plain(value) for value in self.artifacts.moved(table.name, table.columns, row)]
                copy = next(copies, None)
                if copy != original:
                    raise _difference(table, original, copy)
                digest.update(repr(original).encode("utf-8", "surrogatepass"))
                count += 1
            extra = next(copies, None)
            if extra is not None:
                raise _difference(table, None, extra)
        return MovedTable(table.name, count, digest.hexdigest())

    def _rows_of_target(self, table: Table) -> Generator[list[Any]]:
        statement = sql.SQL("SELECT {} FROM {} {} ORDER BY {}").format(
            sql.SQL(", ").join(map(sql.Identifier, table.columns)),
            sql.Identifier(table.name),
            sql.SQL("WHERE key NOT LIKE 'move.%'" if table.name == "meta" else ""),
            sql.SQL(", ").join(map(sql.Identifier, table.key)),
        )
        with self.goal.transaction(), self.goal.cursor(name="holdbeat_move") as cursor:
            cursor.itersize = BATCH
            for row in cursor.execute(statement):
                yield [_plain(value) for value in row]


def _hold_still(origin: apsw.Connection, path: str) -> None:
    """Lets nobody write to the source until this is over; refuses while a process uses it."""
    try:
        origin.execute("BEGIN IMMEDIATE")
    except apsw.BusyError as error:
        raise StoreBusy(
            f"Somebody writes to {path}. Stop every Holdbeat process that uses it, then try again."
        ) from error
    signs = WorkerLocks(Path(f"{path}-run") / "workers")
    live = [
        (host, pid)
        for worker_id, host, pid in origin.execute(
            "SELECT id, host, pid FROM workers WHERE stopped_at IS NULL "
            "AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
        ).fetchall()
        # One that was killed holds no lock any more, although its last heartbeat was a moment ago.
        if not signs.is_known_dead(str(worker_id))
    ]
    if live:
        host, pid = live[0]
        raise Conflict(
            f"{len(live)} worker(s) still use {path}, e.g. process {pid} on {host}. Stop them, then move the store.",
            code="store_in_use",
        )


def tables_of_others(source: str) -> list[str]:
    """Tables in the file that are not Holdbeat's: programs that enqueue in their own transactions keep theirs there."""
    try:
        with contextlib.closing(connect_sqlite(source)) as origin:
            return [name for name in _names(origin) if name not in _own_tables()]
    except apsw.Error as error:
        raise translated(error, source) from error


@cache
def _own_tables() -> frozenset[str]:
    with contextlib.closing(connect_sqlite(MEMORY)) as fresh:
        migrate(fresh, {})
        return frozenset(_names(fresh))


def _names(connection: apsw.Connection) -> list[str]:
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    )
    return [str(row[0]) for row in rows]


def _tables(origin: apsw.Connection, goal: psycopg.Connection[Any]) -> list[Table]:
    names = [name for name in _names(origin) if name in _own_tables() and name not in _NOT_MOVED]
    kinds: dict[str, dict[str, str]] = {}
    for table, column, kind in goal.execute(
        "SELECT table_name, column_name, udt_name FROM information_schema.columns "
        "WHERE table_schema = ANY(current_schemas(false))"
    ):
        kinds.setdefault(table, {})[column] = kind
    tables = []
    for name in names:
        described = origin.execute(f"SELECT name, pk FROM pragma_table_info('{name}')").fetchall()
        columns = tuple(str(row[0]) for row in described)
        missing = [column for column in columns if column not in kinds.get(name, {})]
        if missing:
            raise StoreRefused(
                f"The target has no column {name}.{missing[0]}. Bring both to the same version: holdbeat migrate.",
                code="changed_schema",
            )
        key = tuple(str(row[0]) for row in sorted(described, key=lambda row: int(str(row[1]))) if row[1])
        tables.append(Table(name, columns, tuple(kinds[name][column] for column in columns), key))
    return tables


def _begin(origin: apsw.Connection, goal: psycopg.Connection[Any], tables: Sequence[Table], path: str) -> bool:
    """Marks the target as ours, or finds it marked; wipes a copy of what the source no longer is.

    Returns whether part of the copy is there already.
    """
    fingerprint = _fingerprint(origin, path)
    with goal.transaction():
        row = goal.execute("SELECT value FROM meta WHERE key = %s", [_ORIGIN]).fetchone()
        if row is not None and json.loads(row[0]) == fingerprint:
            return True
        if row is not None and json.loads(row[0])["path"] != path:
            raise Conflict(
                f"The target holds an unfinished move from {json.loads(row[0])['path']}. Finish that one, or give an "
                "empty database.",
                code="target_not_empty",
            )
        if row is None:
            # What every App announces to a new store by itself makes it no less new.
            full = [table.name for table in tables if table.name != "job_types" and _has_rows(goal, table.name)]
            if full:
                raise Conflict(
                    f"The target is not empty: it has rows in {', '.join(full)}. Move into a new database.",
                    code="target_not_empty",
                )
        _empty(goal, tables, fingerprint)
    return False


def _empty(goal: psycopg.Connection[Any], tables: Sequence[Table], fingerprint: dict[str, Any]) -> None:
    """Takes everything out of the target, and notes what will be copied there."""
    with goal.transaction():
        names = sql.SQL(", ").join(sql.Identifier(table.name) for table in tables)
        goal.execute(sql.SQL("TRUNCATE {}").format(names))
        goal.execute("INSERT INTO meta (key, value) VALUES (%s, %s)", [_ORIGIN, json.dumps(fingerprint)])


def _has_rows(goal: psycopg.Connection[Any], table: str) -> bool:
    return goal.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(table))).fetchone() is not None


def _fingerprint(origin: apsw.Connection, path: str) -> dict[str, Any]:
    """A fingerprint that changes with every decision in the source: each decision is an Event."""
    last = origin.execute(f"SELECT {LAST_EVENT_ID}").fetchall()[0][0]
    counts = origin.execute("SELECT name, value FROM counters ORDER BY name").fetchall()
    return {"path": path, "events": last, "counters": [list(row) for row in counts]}


def _plain(value: Any) -> Any:
    """A value in the form that both engines can be brought to."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return iso(value) if hasattr(value, "isoformat") else value


def _difference(table: Table, original: list[Any] | None, copy: list[Any] | None) -> CopyDiffers:
    """Says where the copy differs, but not how: the values may be secret."""
    key_of = [table.columns.index(name) for name in table.key]
    first = original is not None and [original[index] for index in key_of]
    second = copy is not None and [copy[index] for index in key_of]
    if original is not None and copy is not None and first == second:
        columns = [name for name, before, after in zip(table.columns, original, copy, strict=True) if before != after]
        where = f"in the column{'s' * (len(columns) > 1)} {', '.join(columns)} of the row {_key(table, original)}"
    elif original is not None and (not second or (first and first < second)):
        where = f"the row {_key(table, original)} is missing in the target"
    else:
        assert copy is not None
        where = f"the target has a row {_key(table, copy)} that the source does not have"
    return CopyDiffers(
        f"The copy differs from the source in the table {table.name}: {where}. The source is as it was. Look for a "
        "trigger or a program that changes the target, then move again."
    )


def _key(table: Table, row: list[Any]) -> str:
    return ", ".join(f"{name} = {row[table.columns.index(name)]}" for name in table.key)
