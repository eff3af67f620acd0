"""The database behind a PostgresStore: connections with our settings, and the schema brought up to date."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import TextLoader

from holdbeat.domain.clock import Clock, OffsetClock, iso
from holdbeat.domain.errors import HoldbeatError, StoreBusy, StoreDown, StoreRefused
from holdbeat.domain.store_url import check_postgres_url, unreadable_url
from holdbeat.store.migrate import TABLE, pending
from holdbeat.store.postgres.pipeline import StatementPipeline, Statements
from holdbeat.store.postgres.sessions import APPLICATION
from holdbeat.store.postgres.transaction import ColumnTypes
from holdbeat.store.transaction import Row

log = logging.getLogger("holdbeat.store")

MIGRATION_LOCK = 7450001
MIGRATION_ATTEMPTS = 10
_TERMS = {
    "TimeZone": "UTC",
    "synchronous_commit": "on",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "30s",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "plan_cache_mode": "auto",
}
"""To start parallel workers takes 5 ms and more, and nearly all statements take less than that."""
_WRITING_TERMS = {**_TERMS, "seq_page_cost": "20"}
"""While a table is young PostgreSQL reads the whole of it rather than seek a few rows, and keeps that plan as it grows,
until the next ANALYZE: a claim or a batch of results then reads every job there ever was. `enable_seqscan = off` would
spoil the plans of statements that have to read a whole table: their other costs are lost beside it."""
_COMPRESS_BY_LZ4 = (
    "SELECT set_config(name, 'lz4', false) FROM pg_settings "
    "WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)"
)
"""Commits write batches of events: pglz took 0.9 µs longer for each job and name. A server can be built without lz4."""


class StoreConnection(psycopg.Connection[Row]):
    """A connection that Holdbeat made, to tell it from those of the program around us."""

    is_pooled = False
    """Whether something in between, such as PgBouncer, may give each transaction another session of the server."""
    terms: Mapping[str, str] = _TERMS
    """Our settings."""
    statements: Statements

    def use_transactions_only(self) -> None:
        """Gives up what belongs to a session, if there may be another one for each transaction.

        A pooler makes up the process id that it announces, so that one differs from the server's own.
        """
        row = self.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
        assert row is not None
        self.is_pooled = row[0] != self.info.backend_pid
        if self.is_pooled:
            self.prepare_threshold = None

    def begin(self, pipeline: StatementPipeline, mode: str = "") -> None:
        """Begins a transaction with our settings, which a pooled session does not have of itself."""
        pipeline.send(f"BEGIN {mode}")
        if self.is_pooled:
            settings = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in self.terms.items())
            pipeline.send(f"SELECT {settings}")


class _CleanUpErrors(logging.Filter):
    """Takes the driver's reports of a clean-up that failed after an error, for our connections, out of its log.

    Each unit of work that an outage interrupts makes one, beside the error itself, which is raised and reported. They
    go to our log at the level debug. Whatever else the driver reports passes, and so do connections of others.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith("error ignored") or not isinstance(record.args, tuple) or not record.args:
            return True
        subject = record.args[0]
        if not isinstance(getattr(subject, "_conn", subject), StoreConnection):
            return True
        log.debug("after an error that is reported elsewhere: %s", record.getMessage())
        return False


for _name in ("psycopg", "psycopg.transaction"):
    logging.getLogger(_name).addFilter(_CleanUpErrors())


def connect(url: str, *, reads_only: bool = False) -> StoreConnection:
    """A connection with our settings."""
    connection = StoreConnection.connect(
        url,
        autocommit=True,
        connect_timeout=5,
        keepalives_idle=10,
        tcp_user_timeout=15000,
        application_name=APPLICATION,
    )
    try:
        connection.adapters.register_loader("json", TextLoader)
        connection.use_transactions_only()
        connection.statements = Statements(connection)
        connection.terms = _TERMS if reads_only else _WRITING_TERMS
        if not connection.is_pooled:
            terms = "; ".join(f"SET {name} = '{value}'" for name, value in connection.terms.items())
            connection.execute(terms.encode())
            if not reads_only:
                connection.execute(_COMPRESS_BY_LZ4, prepare=False)
    except BaseException:
        connection.close()
        raise
    return connection


class Link:
    """One thread's connection: made when needed, dropped when broken."""

    def __init__(self, url: str, *, reads_only: bool = False) -> None:
        self._url = url
        self._reads_only = reads_only
        self._connection: StoreConnection | None = None

    def get(self) -> StoreConnection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._url, reads_only=self._reads_only)
        return self._connection

    def roll_back(self) -> None:
        if self._connection is None:
            return
        try:
            self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self.drop()

    def drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    close = drop


def open_database(url: str, *, create: bool, clock: Clock, indexes: Mapping[str, str]) -> ColumnTypes:
    """Migrates the schema, adds these indexes, and reads the types of its columns."""
    check_postgres_url(url)
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise unreadable_url() from None
    try:
        return _open_database(url, create=create, clock=clock, indexes=indexes)
    except psycopg.Error as error:
        raise _why_not_opened(error) from error


def _why_not_opened(error: psycopg.Error) -> HoldbeatError | psycopg.Error:
    match error:
        case pg.ReadOnlySqlTransaction():
            return StoreRefused(
                f"The database only reads ({error}). Name one that writes: the primary, not a standby, and a user "
                "whose default_transaction_read_only is off.",
                code="store_read_only",
            )
        case pg.InsufficientPrivilege():
            return StoreRefused(
                f"The database refused this user ({error}). Grant it CREATE on the schema and the rights on Holdbeat's "
                "tables; the first process with aging_s must run as their owner.",
                code="store_read_only",
            )
        case pg.QueryCanceled():
            return StoreBusy(
                f"The database did not answer in time while the store was opened ({error}). Look for what holds locks "
                "there, then start again.",
                code="statement_timeout",
            )
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreDown(f"The database cannot be reached ({error}). Check --store and that the server runs.")
    return error


def _open_database(url: str, *, create: bool, clock: Clock, indexes: Mapping[str, str]) -> ColumnTypes:
    with contextlib.closing(connect(url)) as connection:
        migrate(connection, create=create, at=iso(clock.now()), indexes=indexes)
        if isinstance(clock, OffsetClock):
            started = clock.monotonic()
            row = connection.execute("SELECT clock_timestamp()").fetchone()
            assert row is not None
            clock.sample(row[0], asked=started, answered=clock.monotonic())
        types: dict[str, dict[str, str]] = {}
        for table, column, kind in connection.execute(
            "SELECT table_name, column_name, udt_name FROM information_schema.columns "
            "WHERE table_schema = ANY(current_schemas(false))"
        ):
            types.setdefault(table, {})[column] = kind
        return types


def migrate(connection: psycopg.Connection[Row], *, create: bool, at: str, indexes: Mapping[str, str]) -> None:
    """Brings the schema up to date; a lock lets one process do it while others wait and find it done.

    Whoever reads several tables meanwhile may wait for a change while the change waits for the reader: then PostgreSQL
    ends one of the two, and the change is made again.
    """
    for attempt in range(1, MIGRATION_ATTEMPTS + 1):
        try:
            return _migrate_once(connection, create=create, at=at, indexes=indexes)
        except psycopg.errors.DeadlockDetected:
            if attempt == MIGRATION_ATTEMPTS:
                raise


def _migrate_once(connection: psycopg.Connection[Row], *, create: bool, at: str, indexes: Mapping[str, str]) -> None:
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
        row = connection.execute("SELECT to_regclass('schema_migrations') IS NOT NULL").fetchone()
        exists = bool(row and row[0])
        if not exists and not create:
            raise StoreRefused(
                "There is no Holdbeat store in this database yet. Start `holdbeat serve` on it to make one.",
                code="store_missing",
            )
        connection.execute(TABLE)
        applied = [(int(v), str(c)) for v, c in connection.execute("SELECT version, checksum FROM schema_migrations")]
        for migration in pending("postgres", applied):
            connection.execute(migration.sql.encode())
            connection.execute(
                "INSERT INTO schema_migrations VALUES (%s, %s, %s, %s)",
                [migration.version, migration.name, migration.checksum, at],
            )
        for name, sql in indexes.items():
            # Asked first: IF NOT EXISTS would wait for all who write to the table.
            row = connection.execute("SELECT to_regclass(%s) IS NULL", [name]).fetchone()
            if row and row[0]:
                connection.execute(sql.encode())
                # Now the server knows how many rows there are, and must know what is in them as well: it would rather
                # sort than go by an index of which it knows nothing.
                connection.execute("ANALYZE jobs")
