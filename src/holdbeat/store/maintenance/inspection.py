"""A look at a store without opening it for work: nothing is made, migrated or repaired by it."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from holdbeat.domain.errors import StoreBusy, StoreDown, StoreRefused
from holdbeat.domain.store_url import check_postgres_url, driver_missing, not_understood, unreadable_url
from holdbeat.store.ended_runs import HAD_RUN, RUN_END
from holdbeat.store.migrate import Migration, migrations, pending
from holdbeat.store.opening import sqlite_path
from holdbeat.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class SchemaState:
    engine: str
    applied: tuple[tuple[int, str, str], ...]
    """Version, name and instant of each migration that the store has had."""
    pending: tuple[Migration, ...]

    @property
    def version(self) -> int:
        return max((version for version, _, _ in self.applied), default=0)


def schema_state(url: str) -> SchemaState:
    """The migrations that the store has had, and those it still needs. A store that is not there needs all."""
    path = sqlite_path(url)
    if path is not None:
        return _state("sqlite", _of_sqlite(path))
    if url.startswith(("postgresql://", "postgres://")):
        return _state("postgres", _of_postgres(url))
    raise not_understood(url)


Rows = list[tuple[int, str, str, str]]


def _state(engine: str, rows: Rows) -> SchemaState:
    applied = tuple((version, name, at) for version, name, _, at in rows)
    missing = pending(engine, [(version, checksum) for version, _, checksum, _ in rows]) if rows else migrations(engine)
    return SchemaState(engine, applied, tuple(missing))


ANSWER_WITHIN_S = 60.0
"""As long as a statement of the store may take: without a limit a lock would hold up the look until it is released."""
_SELECT = "SELECT version, name, checksum, applied_at FROM schema_migrations ORDER BY version"


def _of_sqlite(path: str) -> Rows:
    import apsw

    from holdbeat.store.sqlite.errors import translated

    if path == ":memory:" or not os.path.exists(path) or os.path.getsize(path) == 0:
        return []
    try:
        with closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            connection.set_busy_timeout(5000)
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'").fetchall():
                if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
                    raise StoreRefused(
                        f"{path} is a SQLite database of another program. Name another file for the store.",
                        code="foreign_file",
                    )
                return []
            return [(int(str(v)), str(n), str(c), str(a)) for v, n, c, a in connection.execute(_SELECT)]
    except apsw.Error as error:
        raise translated(error, path) from error


def _of_postgres(url: str) -> Rows:
    try:
        import psycopg

        from holdbeat.store.postgres.database import StoreConnection
    except ImportError as error:
        raise driver_missing() from error
    check_postgres_url(url)
    try:
        with StoreConnection.connect(url, connect_timeout=5, application_name="holdbeat") as connection:
            connection.execute(f"SET LOCAL statement_timeout = {int(ANSWER_WITHIN_S * 1000)}".encode())
            row = connection.execute("SELECT to_regclass('schema_migrations') IS NOT NULL").fetchone()
            if row is None or not row[0]:
                return []
            return [(int(v), str(n), str(c), str(a)) for v, n, c, a in connection.execute(_SELECT)]
    except psycopg.ProgrammingError:
        raise unreadable_url() from None
    except psycopg.errors.QueryCanceled as error:
        raise StoreBusy(
            f"The database did not answer in time ({error}). Look for what holds locks there, then try again.",
            code="statement_timeout",
        ) from error
    except psycopg.OperationalError as error:
        raise StoreDown(f"The database cannot be reached ({error}). Check --store and that the server runs.") from error


def is_untouched(tx: Transaction) -> bool:
    """Whether no App has announced anything to this store yet, and nobody has begun to move another one into it."""
    return not tx.rows("SELECT 1 FROM job_types UNION ALL SELECT 1 FROM meta WHERE key LIKE 'move.%' LIMIT 1")


_OLD = (
    f"jobs j WHERE {HAD_RUN} AND {RUN_END} < :before",
    "jobs WHERE started_at IS NULL AND finished_at IS NOT NULL AND finished_at < :before",
    "job_groups WHERE finished_at IS NOT NULL AND finished_at < :before",
    "direct_reservations WHERE finished_at IS NOT NULL AND finished_at < :before",
    "occurrences WHERE recorded_at < :before AND due_at < :before",
    "events WHERE at < :before",
    "workers WHERE expires_at < :before",
)


def old_rows(tx: Transaction, before: datetime) -> int:
    """About how many rows retention could take away; some of them may have to stay."""
    counts = ", ".join(f"(SELECT count(*) FROM {source})" for source in _OLD)
    return sum(int(count) for count in tx.rows(f"SELECT {counts}", before=before)[0])


def server_version(tx: Transaction) -> str:
    row = tx.one("SELECT current_setting('server_version')")
    return str(row[0]) if row else "?"
