"""The fastest honest SQL for a queue: the yardstick that knows nothing of Holdbeat.

A job row and a run row with integer keys, and one queue index. Jobs are inserted in batches; each further transaction
settles the batch before and claims the next one, durable like the Store's. What Holdbeat adds (leases, fences, events,
limits, lists, invariants) is the difference to this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import apsw

from holdbeat.domain.clock import SystemClock

if TYPE_CHECKING:
    import psycopg

    PostgresConnection = psycopg.Connection[tuple[int, ...]]

_SQLITE_TABLES = """
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY, type TEXT NOT NULL, params TEXT NOT NULL, priority INTEGER NOT NULL,
    status INTEGER NOT NULL, created_at INTEGER NOT NULL, finished_at INTEGER
);
CREATE INDEX jobs_queue ON jobs (priority DESC, id) WHERE status = 0;
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, worker_id INTEGER NOT NULL, started_at INTEGER NOT NULL,
    finished_at INTEGER, status INTEGER, result TEXT
);
"""
# The queue index goes by a column that settling leaves alone, and pages have room: so a settle is a HOT update.
_POSTGRES_TABLES = """
CREATE TABLE jobs (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, type text NOT NULL, params text NOT NULL,
    priority integer NOT NULL DEFAULT 0, claimed boolean NOT NULL DEFAULT false, status smallint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(), finished_at timestamptz
) WITH (fillfactor = 50);
CREATE INDEX jobs_queue ON jobs (priority DESC, id) WHERE NOT claimed;
CREATE TABLE runs (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, job_id bigint NOT NULL, worker_id bigint NOT NULL,
    started_at timestamptz NOT NULL, finished_at timestamptz, status smallint, result text
) WITH (fillfactor = 50);
"""
_POSTGRES_TURN = """
WITH ended AS (
    UPDATE runs SET status = 2, finished_at = now(), result = 'null' WHERE id = ANY(%s::bigint[])
), settled AS (
    UPDATE jobs SET status = 2, finished_at = now() WHERE id = ANY(%s::bigint[])
), claimed AS (
    UPDATE jobs SET claimed = true, status = 1 WHERE id = ANY(ARRAY(
        SELECT id FROM jobs WHERE NOT claimed ORDER BY priority DESC, id LIMIT %s FOR UPDATE SKIP LOCKED))
    RETURNING id, type, params
), started AS (
    INSERT INTO runs (job_id, worker_id, started_at) SELECT id, 1, now() FROM claimed RETURNING id, job_id
)
SELECT started.id, claimed.id, type, params FROM started JOIN claimed ON claimed.id = started.job_id
"""
LOG_BYTES = 5_000_000
"""More than SQLite's log has when it is checkpointed: 1,000 pages."""
_clock = SystemClock().monotonic


@dataclass(frozen=True, slots=True)
class BareRates:
    """Jobs per second of bare SQL."""

    life: float
    """Enqueue in batches, claim and settle."""
    claim_and_settle: float
    """Claim and settle alone: what a drain does."""


def sqlite_life(path: str, jobs: int, batch: int) -> BareRates:
    """Rates on a new SQLite file, one caller, synchronous=FULL."""
    connection = _new_sqlite(path)
    try:
        began = _clock()
        for start in range(0, jobs, batch):
            rows = [(f'{{"number":{number}}}', _milliseconds()) for number in range(start, start + batch)]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_SQLITE_INSERT, rows)
            connection.execute("COMMIT")
        enqueued = _clock()
        run_ids: Sequence[int] = []
        job_ids: list[int] = []
        while True:
            run_ids, job_ids = _sqlite_turn(connection, run_ids, job_ids, batch)
            if not job_ids:
                break
        ended = _clock()
        return BareRates(jobs / (ended - began), jobs / (ended - enqueued))
    finally:
        connection.close()


def _sqlite_turn(
    connection: apsw.Connection, run_ids: Sequence[int], job_ids: Sequence[int], batch: int
) -> tuple[Sequence[int], list[int]]:
    """One commit: settles these runs and claims the next ones."""
    now = _milliseconds()
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "UPDATE runs SET status = 2, finished_at = ?, result = 'null' WHERE id = ?", [(now, id) for id in run_ids]
    )
    connection.executemany("UPDATE jobs SET status = 2, finished_at = ? WHERE id = ?", [(now, id) for id in job_ids])
    claimed = connection.execute(
        "UPDATE jobs SET status = 1 WHERE id IN "
        "(SELECT id FROM jobs WHERE status = 0 ORDER BY priority DESC, id LIMIT ?) RETURNING id, type, params",
        (batch,),
    ).fetchall()
    claimed_ids: list[Any] = [row[0] for row in claimed]
    connection.executemany(
        "INSERT INTO runs (job_id, worker_id, started_at) VALUES (?, 1, ?)", [(id, now) for id in claimed_ids]
    )
    last = connection.last_insert_rowid()
    connection.execute("COMMIT")
    return range(last - len(claimed_ids) + 1, last + 1), claimed_ids


def postgres_life(url: str, jobs: int, batch: int, callers: int) -> BareRates:
    """Rates on a new PostgreSQL database, at most that many connections, one queue."""
    import psycopg  # needed on PostgreSQL only

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_POSTGRES_TABLES.encode())
    callers = max(1, min(callers, jobs // batch))
    connections: list[PostgresConnection] = [psycopg.connect(url, autocommit=True) for _ in range(callers)]
    share = jobs // callers // batch * batch
    try:
        began = _clock()
        in_parallel([partial(_postgres_enqueue, connection, share, batch) for connection in connections])
        enqueued = _clock()
        in_parallel([partial(_postgres_drain, connection, batch) for connection in connections])
        ended = _clock()
        return BareRates(share * callers / (ended - began), share * callers / (ended - enqueued))
    finally:
        for connection in connections:
            connection.close()


def _postgres_enqueue(connection: PostgresConnection, jobs: int, batch: int) -> None:
    for start in range(0, jobs, batch):
        connection.execute(
            "INSERT INTO jobs (type, params) SELECT 'noop', params FROM unnest(%s::text[]) AS u(params)",
            ([f'{{"number":{number}}}' for number in range(start, start + batch)],),
            prepare=True,
        )


def _postgres_drain(connection: PostgresConnection, batch: int) -> None:
    """Commit after commit: each settles the batch before and claims the next one."""
    run_ids: list[int] = []
    job_ids: list[int] = []
    while True:
        rows = connection.execute(_POSTGRES_TURN.encode(), (run_ids, job_ids, batch), prepare=True).fetchall()
        if not rows:
            return
        run_ids, job_ids = [row[0] for row in rows], [row[1] for row in rows]


def sqlite_single_commits(path: str, commits: int) -> float:
    """One-row commits per second, one after the other."""
    connection = _new_sqlite(path)
    try:
        fill_log(connection)
        began = _clock()
        for number in range(commits):
            connection.execute(_SQLITE_INSERT, (f'{{"number":{number}}}', _milliseconds()))
        return commits / (_clock() - began)
    finally:
        connection.close()


def fill_log(connection: apsw.Connection) -> None:
    """Gives SQLite's write-ahead log its full size.

    As long as that file grows, each commit also waits for the journal of the file system: up to fifty times as long.
    After its first checkpoint the log is written over, and stays as large as it is.
    """
    connection.execute("CREATE TABLE log_filler (content BLOB)").fetchall()
    connection.execute("INSERT INTO log_filler VALUES (zeroblob(?))", (LOG_BYTES,)).fetchall()


_SQLITE_INSERT = "INSERT INTO jobs (type, params, priority, status, created_at) VALUES ('noop', ?, 0, 0, ?)"


def postgres_single_commits(url: str, commits: int) -> float:
    """One-row commits per second on one connection, one after the other."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_POSTGRES_TABLES.encode())
        began = _clock()
        for number in range(commits):
            connection.execute(
                "INSERT INTO jobs (type, params) VALUES ('noop', %s)", (f'{{"number":{number}}}',), prepare=True
            )
        return commits / (_clock() - began)


def _new_sqlite(path: str) -> apsw.Connection:
    connection = apsw.Connection(path)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(_SQLITE_TABLES).fetchall()
    return connection


def _milliseconds() -> int:
    return int(_clock() * 1000)


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
