"""What the engine underneath can do with the very statements of the Store.

A life is recorded once while the verbs run on one store, then replayed on new ones straight through the driver: the
same texts and parameters with fresh ids, in the same transactions, the same rows fetched at the same points, without
the verbs and without their objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import apsw
import psycopg

from benchmarks.timing import stopwatch
from holdbeat.bench.bare import in_parallel
from holdbeat.domain.clock import SystemClock
from holdbeat.domain.ids import IdSource
from holdbeat.store.postgres import database as postgres_database
from holdbeat.store.sqlite import file as sqlite_file

_ID = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})")


@dataclass(slots=True)
class Step:
    """One statement: its text, its parameters, and whether its rows were read."""

    sql: Any
    params: Any
    fetched: bool = False
    new_ids: int = 0
    """How many ids appear here first."""
    recipe: dict[Any, list[Any]] = field(default_factory=dict)
    """Parameters with ids in them: the pieces of their text, with a number for each id."""

    def prepare(self, numbers: dict[str, int]) -> None:
        """Finds the ids, so that a replay can put fresh ones in their places."""
        known = len(numbers)
        items = self.params.items() if isinstance(self.params, dict) else enumerate(self.params or ())
        for key, value in items:
            if isinstance(value, str) and _ID.search(value):
                pieces = [piece for piece in _ID.split(value) if piece]
                self.recipe[key] = [
                    numbers.setdefault(piece, len(numbers)) if _ID.fullmatch(piece) else piece for piece in pieces
                ]
        self.new_ids = len(numbers) - known

    def fresh(self, ids: list[str]) -> Any:
        """The parameters with the ids of this replay."""
        if not self.recipe:
            return self.params
        made = dict(self.params) if isinstance(self.params, dict) else list(self.params)
        for key, pieces in self.recipe.items():
            if len(pieces) == 1:
                made[key] = ids[pieces[0]]
            else:
                made[key] = "".join([ids[piece] if type(piece) is int else piece for piece in pieces])
        return made


@dataclass(slots=True)
class Recording:
    """The statements of each connection in their order."""

    steps: list[list[Step]] = field(default_factory=list)

    def prepare(self) -> Recording:
        for steps in self.steps:
            numbers: dict[str, int] = {}
            for step in steps:
                step.prepare(numbers)
        return self


# --- SQLite ----------------------------------------------------------------------------------------------------------


class _RecordingConnection:
    """Stands between the Store and its apsw connection and writes down what passes."""

    def __init__(self, connection: apsw.Connection, steps: list[Step]) -> None:
        self._connection = connection
        self._steps = steps

    def execute(self, sql: str, params: Any = None) -> apsw.Cursor:
        self._steps.append(Step(sql, dict(params) if isinstance(params, dict) else params, fetched=True))
        return self._connection.execute(sql, params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def record_sqlite(store: Any, live: Callable[[], None]) -> Recording:
    """Writes down what `live` does on the writer's connection of a store."""
    steps: list[Step] = []
    store._connection = _RecordingConnection(store._connection, steps)
    live()
    return Recording([steps]).prepare()


def replay_sqlite(recording: Recording, path: str) -> float:
    """Seconds that the recorded statements take on a new file with the Store's schema and settings."""
    connection, _ = sqlite_file.open_file(path, create=True)
    try:
        source, now = IdSource(), SystemClock().now()
        ids: list[str] = []
        with stopwatch() as watch:
            for step in recording.steps[0]:
                if step.new_ids:
                    ids += source.many(now, step.new_ids)
                connection.execute(step.sql, step.fresh(ids)).fetchall()
        return watch.elapsed_s
    finally:
        connection.close()


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


def record_postgres(live: Callable[[], None]) -> Recording:
    """Writes down what `live` does on every connection that a PostgresStore opens in it."""
    recording = Recording()
    connect = postgres_database.connect

    def recording_connect(url: str) -> psycopg.Connection[Any]:
        connection = connect(url)
        steps: list[Step] = []
        recording.steps.append(steps)

        class RecordingCursor(psycopg.Cursor[Any]):
            step: Step | None = None

            def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
                self.step = Step(query, dict(params) if isinstance(params, dict) else params)
                steps.append(self.step)
                return super().execute(query, params, **options)

            def fetchall(self) -> list[Any]:
                if self.step is not None:
                    self.step.fetched = True
                return super().fetchall()

            def fetchone(self) -> Any:
                if self.step is not None:
                    self.step.fetched = True
                return super().fetchone()

        connection.cursor_factory = RecordingCursor
        return connection

    with patch.object(postgres_database, "connect", recording_connect):
        live()
    # Connections that only migrated or read have no transaction that writes.
    recording.steps = [steps for steps in recording.steps if any(step.sql == "COMMIT" for step in steps)]
    return recording.prepare()


def replay_postgres(recording: Recording, url: str) -> float:
    """Seconds that the recorded statements take on a new database, on as many connections as were recorded."""
    connections = [postgres_database.connect(url) for _ in recording.steps]
    try:
        with stopwatch() as watch:
            in_parallel(
                [
                    partial(_replay_on, connection, steps)
                    for connection, steps in zip(connections, recording.steps, strict=True)
                ]
            )
        return watch.elapsed_s
    finally:
        for connection in connections:
            connection.close()


def _replay_on(connection: psycopg.Connection[Any], steps: list[Step]) -> None:
    position = 0
    source, now = IdSource(), SystemClock().now()
    ids: list[str] = []
    while position < len(steps):
        with connection.pipeline():
            while True:
                step = steps[position]
                position += 1
                if step.new_ids:
                    ids += source.many(now, step.new_ids)
                cursor = connection.execute(step.sql, step.fresh(ids))
                if step.fetched:
                    cursor.fetchall()
                if step.sql == "COMMIT":
                    break
