"""Finds out whether a transaction was committed whose COMMIT got no answer (DEC-008)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg
from psycopg import errors as pg

from holdbeat.domain.clock import Clock
from holdbeat.domain.errors import StoreDown
from holdbeat.store.postgres.database import Link, StoreConnection
from holdbeat.store.postgres.errors import READ_ONLY
from holdbeat.store.transaction import Row

T = TypeVar("T")

_STATUS = "SELECT CASE WHEN pg_is_in_recovery() THEN 'in progress' ELSE pg_xact_status(%s::xid8) END"
"""A standby may not have replayed the transaction yet."""


def was_committed(link: Link, xid: str, written: Sequence[Row], clock: Clock, timeout_s: Callable[[], float]) -> bool:
    """Asks the database by the transaction's id, until it answers; `written` are the Events of the transaction."""

    def ask(connection: StoreConnection) -> bool | None:
        try:
            row = connection.execute(_STATUS, [xid]).fetchone()
        except pg.InvalidParameterValue:
            # "In the future": the server crashed before it had written anything of this transaction.
            return False
        if row is None or row[0] == "in progress":
            return None
        return bool(row[0] == "committed") and _has_events(connection, xid, written)

    return until_answered(link, ask, clock, timeout_s)


def until_answered(
    link: Link, ask: Callable[[StoreConnection], T | None], clock: Clock, timeout_s: Callable[[], float]
) -> T:
    """Asks until there is an answer, over as many connections as that takes.

    `timeout_s` is read again at each attempt: a shutdown that begins meanwhile makes it shorter.
    """
    pause_s = 0.05
    began = clock.monotonic()
    while True:
        failure: Exception | None = None
        try:
            answer = ask(link.get())
            if answer is not None:
                return answer
        except (psycopg.OperationalError, READ_ONLY) as error:
            failure = error
        # Also without an answer: the next connection may lead to a server that has one.
        link.drop()
        if clock.monotonic() > began + timeout_s():
            raise StoreDown(
                f"The database went away while it stored this and did not come back ({failure or 'a standby answers'})."
                " It is not known whether it was stored: look before you try again, or use an idempotency key.",
                code="commit_unknown",
            ) from failure
        time.sleep(random.uniform(pause_s / 2, pause_s))
        pause_s = min(pause_s * 2, 1.0)


def _has_events(connection: StoreConnection, xid: str, written: Sequence[Row]) -> bool:
    """Whether the Events of a committed transaction are there.

    A server that crashed may give the id of a transaction that it lost to the next one.
    """
    event = next((row for row in written if row[2]), None)
    if event is None:
        return True
    name, at, job_id = event[:3]
    cursor = connection.execute(
        "SELECT 1 FROM events WHERE xid = %s::xid8 AND name = %s AND at = %s "
        "AND (job_id = %s OR position(%s IN batch::text) > 0)",
        [xid, name, at, job_id, job_id],
    )
    return cursor.fetchone() is not None
