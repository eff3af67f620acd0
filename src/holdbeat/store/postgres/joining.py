"""Which connections of a program Holdbeat can write to inside of the program's own transaction."""

from __future__ import annotations

from typing import Any

import psycopg

from holdbeat.domain.errors import HoldbeatError
from holdbeat.store.postgres.awaited import AwaitedConnection


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
