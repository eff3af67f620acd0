"""Connections of programs, in whose own transactions Holdbeat can write, and new connections for programs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg

from holdbeat.domain.errors import HoldbeatError, StoreDown
from holdbeat.store.postgres.awaited import AwaitedConnection
from holdbeat.store.postgres.sessions import APPLICATION
from holdbeat.store.transaction import Row


def check_joinable(connection: Any) -> None:
    """Refuses what is no connection of psycopg, one that must be awaited, and one without an open transaction."""
    driver = connection.connection if isinstance(connection, AwaitedConnection) else connection
    if isinstance(driver, psycopg.AsyncConnection) and driver is connection:
        raise HoldbeatError(
            "An AsyncConnection can only be used by the verbs that are awaited: await app.with_options("
            "connection=connection).enqueue(…), not enqueue_sync.",
            code="needs_await",
        )
    if not isinstance(driver, psycopg.Connection | psycopg.AsyncConnection):
        raise HoldbeatError(
            "To enqueue inside your own transaction on PostgreSQL, hand in the connection of `with "
            "app.connection() as connection:`, a psycopg 3 Connection or AsyncConnection, or the Session or "
            f"connection of SQLAlchemy or Django over one; this is a {type(driver).__module__}."
            f"{type(driver).__qualname__}.",
            code="no_transaction",
        )
    if driver.autocommit and driver.info.transaction_status != psycopg.pq.TransactionStatus.INTRANS:
        raise HoldbeatError(
            "No transaction is open on this connection, and it is in autocommit mode: the job would be stored at "
            "once. Enqueue inside `with connection.transaction():`, in Django inside `transaction.atomic()`.",
            code="no_transaction",
        )


@contextlib.contextmanager
def callers_connection(url: str) -> Iterator[psycopg.Connection[Row]]:
    """A connection with an open transaction, committed at the end of the block unless it raised."""
    try:
        connection = psycopg.connect(url, connect_timeout=5, application_name=APPLICATION, prepare_threshold=None)
    except psycopg.OperationalError as error:
        raise StoreDown(
            f"The database cannot be reached ({error}). Check that the server runs, and try again."
        ) from error
    # The driver leaves a connection open whose COMMIT is refused, by a deferred constraint for one.
    with contextlib.closing(connection), connection:
        yield connection
