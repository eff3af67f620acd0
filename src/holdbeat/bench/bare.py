"""The shortest honest life of a job in SQL: the yardstick that knows nothing of Holdbeat.

Two tables, their primary keys and one queue index. Enqueue, claim and settle are one transaction each, durable like
the Store's. What Holdbeat adds (leases, fences, events, limits, lists, invariants) is what `bare_ratio` prices.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import apsw

from holdbeat.domain.clock import SystemClock

if TYPE_CHECKING:
    import psycopg

_SQLITE_TABLES = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY NOT NULL, type TEXT NOT NULL, params TEXT NOT NULL, status TEXT NOT NULL,
    priority INTEGER NOT NULL, position INTEGER NOT NULL, created_at TEXT NOT NULL, finished_at TEXT
);
CREATE INDEX jobs_queue ON jobs (priority DESC, position) WHERE status = 'QUEUED';
CREATE TABLE runs (
    id TEXT PRIMARY KEY NOT NULL, job_id TEXT NOT NULL, worker_id TEXT NOT NULL, started_at TEXT NOT NULL,
    finished_at TEXT, status TEXT, result TEXT
);
"""
_POSTGRES_TABLES = re.sub(r"(\w+_at) TEXT", r"\1 timestamptz", _SQLITE_TABLES)
_clock = SystemClock().monotonic
_NOW = "2026-01-01T00:00:00.000Z"


def sqlite_life(path: str, jobs: int, batch: int) -> float:
    """Lives per second on a new SQLite file, one caller, synchronous=FULL."""
    connection = apsw.Connection(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(_SQLITE_TABLES).fetchall()
        began = _clock()
        for start in range(0, jobs, batch):
            rows = [(str(uuid.uuid4()), "noop", "{}", number, _NOW) for number in range(start, start + batch)]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO jobs VALUES (?, ?, ?, 'QUEUED', 0, ?, ?, NULL)", rows)
            connection.execute("COMMIT")
        done = 0
        while done < jobs:
            connection.execute("BEGIN IMMEDIATE")
            found = connection.execute(
                "SELECT id, type, params FROM jobs WHERE status = 'QUEUED' ORDER BY priority DESC, position LIMIT ?",
                (batch,),
            ).fetchall()
            ids = json.dumps([row[0] for row in found])
            connection.execute(
                "UPDATE jobs SET status = 'RUNNING' WHERE id IN (SELECT value FROM json_each(?))", (ids,)
            )
            runs = [(str(uuid.uuid4()), row[0], "w", _NOW) for row in found]
            connection.executemany("INSERT INTO runs (id, job_id, worker_id, started_at) VALUES (?, ?, ?, ?)", runs)
            connection.execute("COMMIT")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "UPDATE runs SET status = 'COMPLETED', finished_at = ?, result = '{\"ok\":1}' "
                "WHERE id IN (SELECT value FROM json_each(?))",
                (_NOW, json.dumps([run[0] for run in runs])),
            )
            connection.execute(
                "UPDATE jobs SET status = 'COMPLETED', finished_at = ? WHERE id IN (SELECT value FROM json_each(?))",
                (_NOW, ids),
            )
            connection.execute("COMMIT")
            done += len(found)
        return jobs / (_clock() - began)
    finally:
        connection.close()


def postgres_life(url: str, jobs: int, batch: int, callers: int) -> float:
    """Lives per second on a new PostgreSQL database, that many connections, one queue."""
    import psycopg  # only those who measure on PostgreSQL have it

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_POSTGRES_TABLES.encode())
    connections = [psycopg.connect(url, autocommit=True) for _ in range(callers)]
    share = jobs // callers // batch * batch
    try:
        began = _clock()
        in_parallel([partial(_postgres_caller, connection, share, batch) for connection in connections])
        return share * callers / (_clock() - began)
    finally:
        for connection in connections:
            connection.close()


def _postgres_caller(connection: psycopg.Connection[tuple[object, ...]], jobs: int, batch: int) -> None:
    for start in range(0, jobs, batch):
        connection.execute(
            "INSERT INTO jobs SELECT i, 'noop', '{}', 'QUEUED', 0, n, now() "
            "FROM unnest(%s::text[], %s::int[]) AS u(i, n)",
            ([str(uuid.uuid4()) for _ in range(batch)], list(range(start, start + batch))),
        )
    done = 0
    while done < jobs:
        runs = [str(uuid.uuid4()) for _ in range(batch)]
        found = connection.execute(
            "WITH claimed AS (UPDATE jobs SET status = 'RUNNING' WHERE id = ANY(ARRAY(SELECT id FROM jobs "
            "WHERE status = 'QUEUED' ORDER BY priority DESC, position LIMIT %s FOR UPDATE SKIP LOCKED)) "
            "RETURNING id, type, params), started AS (INSERT INTO runs (id, job_id, worker_id, started_at) "
            "SELECT (%s::text[])[row_number() OVER ()], id, 'w', now() FROM claimed RETURNING id, job_id) "
            "SELECT started.id, claimed.* FROM started JOIN claimed ON claimed.id = started.job_id",
            (min(batch, jobs - done), runs),
        ).fetchall()
        connection.execute(
            "WITH ended AS (UPDATE runs SET status = 'COMPLETED', finished_at = now(), result = '{\"ok\":1}' "
            "WHERE id = ANY(%s)) UPDATE jobs SET status = 'COMPLETED', finished_at = now() WHERE id = ANY(%s)",
            ([row[0] for row in found], [row[1] for row in found]),
        )
        done += len(found)


def sqlite_single_commits(path: str, commits: int) -> float:
    """One-row commits per second, one after the other."""
    connection = apsw.Connection(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(_SQLITE_TABLES).fetchall()
        began = _clock()
        for number in range(commits):
            connection.execute(
                "INSERT INTO jobs VALUES (?, 'noop', '{}', 'QUEUED', 0, ?, ?, NULL)",
                (str(uuid.uuid4()), number, _NOW),
            )
        return commits / (_clock() - began)
    finally:
        connection.close()


def postgres_single_commits(url: str, commits: int) -> float:
    """One-row commits per second on one connection, one after the other."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_POSTGRES_TABLES.encode())
        began = _clock()
        for number in range(commits):
            connection.execute(
                "INSERT INTO jobs VALUES (%s, 'noop', '{}', 'QUEUED', 0, %s, now())", (str(uuid.uuid4()), number)
            )
        return commits / (_clock() - began)


def in_parallel(calls: Sequence[Callable[[], object]]) -> None:
    """Runs each call in a thread of its own and raises what the first of them raised."""
    errors: list[BaseException] = []

    def guarded(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
