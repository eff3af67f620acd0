"""Errors of PostgreSQL and of its driver: which are races, which are outages, and the sentences that say what to do."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from holdbeat.domain.errors import Conflict, StoreBusy, StoreDown, StoreRefused
from holdbeat.store.migrate import REFUSING_TRIGGERS

_SESSION_ENDED = (pg.IdleInTransactionSessionTimeout, pg.TransactionTimeout)
"""The server ended the session of a process that did nothing; the driver does not count this as operational."""

LOST = (psycopg.OperationalError, psycopg.InterfaceError, *_SESSION_ENDED)
"""The connection is lost, or must be taken for lost."""

READ_ONLY = pg.ReadOnlySqlTransaction
"""The server is read-only: a standby, or set so. It may be promoted, or another server found, in a moment."""

OUTAGES = (*LOST, READ_ONLY, StoreDown)

RACES = (pg.DeadlockDetected, pg.SerializationFailure, pg.LockNotAvailable)
"""The unit lost a race of locks and can be run again."""

UNPREPARED = pg.InvalidSqlStatementName
"""The driver takes a statement for prepared that the server skipped, because one before it in the same pipeline failed.
A new connection knows of none."""


def translated(error: Exception) -> Exception:
    """The same error in words that say what to do; errors of ours in the SQL stay what they are."""
    match error:
        case pg.CheckViolation() if error.diag.constraint_name in REFUSING_TRIGGERS:
            return Conflict(f"The store refused the change: {error.diag.message_primary}.", code="invariant")
        case pg.UndefinedTable() | pg.UndefinedColumn() | pg.InvalidCatalogName():
            return StoreRefused(
                f"The tables of the store are gone or changed ({error}). Nothing more is written. Restore them "
                "from a backup, then start again.",
                code="store_replaced",
            )
        case pg.InsufficientPrivilege():
            return StoreRefused(
                f"The database refused this user ({error}). Grant it the rights on Holdbeat's tables.",
                code="store_read_only",
            )
        case pg.DiskFull():
            return StoreDown(f"The database's disk is full; nothing was stored ({error}).", code="disk_full")
        case pg.ReadOnlySqlTransaction():
            return StoreRefused(
                f"The database only reads ({error}), and did not change back in time. Nothing more is written. Look "
                "whether it has become a standby or default_transaction_read_only is on, name the one that writes "
                "with --store, then start again.",
                code="store_read_only",
            )
        case pg.QueryCanceled():
            return StoreBusy(
                f"The database did not finish this within its statement timeout; nothing was stored ({error}). "
                "Look for what holds locks or loads it, then try again.",
                code="statement_timeout",
            )
        case _ if isinstance(error, LOST):
            return StoreDown(f"The database cannot be reached; nothing was stored ({error}). Try again.")
    return error
