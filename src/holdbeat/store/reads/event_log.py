"""The log of Events, read in the order in which it was committed.

Guards API-04: whoever goes on from an id that he was given gets every later Event once. On PostgreSQL ids are given
out before the commit, so a lower one can appear after a higher one has been read. There the order is (transaction,
id), and only transactions older than every open one are shown: nothing can appear before them any more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.events import Event
from holdbeat.store.transaction import Transaction

_FIELDS = "id, name, at, job_id, run_id, worker_id, group_id, schedule_id, data"
_INT_MAX = 2**63 - 1
PATIENCE = timedelta(seconds=2)
"""Events that are not shown for longer than this are held up by more than the writers of the moment."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An Event with the id by which a reader can go on after it."""

    cursor: str
    event: Event


def read_events(
    tx: Transaction,
    after: str | None = None,
    *,
    job_id: str | None = None,
    names: Sequence[str] | None = None,
    limit: int = 500,
) -> list[LoggedEvent]:
    """Events after a cursor, the oldest first; from the beginning without one."""
    where = ["1 = 1"]
    params: dict[str, Any] = {"limit": limit}
    if tx.dialect == "sqlite":
        chosen, order = "''", "id"
        if after is not None:
            where.append("id > :id")
            params["id"] = _sqlite_cursor(after)
    else:
        # Named with their table: a bare xid would be the text that is chosen, in which 1000 comes before 999.
        chosen, order = "events.xid::text", "events.xid, events.id"
        if _is_held_up(tx):
            where.append("xid < :floor::xid8")
            params["floor"] = _floor(tx)
        else:
            where.append("xid < pg_snapshot_xmin(pg_current_snapshot())")
        if after is not None:
            where.append("(xid, id) > (:xid::xid8, :id)")
            params["xid"], params["id"] = _postgres_cursor(tx, after)
    if job_id is not None:
        where.append("job_id = :job_id")
        params["job_id"] = job_id
    if names is not None:
        where.append("name IN :names")
        params["names"] = list(names)
    found = tx.rows(
        f"SELECT {chosen}, {_FIELDS} FROM events WHERE {' AND '.join(where)} ORDER BY {order} LIMIT :limit", **params
    )
    return [LoggedEvent(_cursor(row[0], row[1]), _event_of(tx, row[1:])) for row in found]


def events_of_job(tx: Transaction, job_id: str, limit: int = 500, *, after: int = 0) -> list[LoggedEvent]:
    """The Events of one job as they are now, in order; with `after`, those with a greater id."""
    chosen = "''" if tx.dialect == "sqlite" else "events.xid::text"
    found = tx.rows(
        f"SELECT {chosen}, {_FIELDS} FROM events WHERE job_id = :job_id AND id > :after ORDER BY id LIMIT :limit",
        job_id=job_id,
        after=after,
        limit=limit,
    )
    return [LoggedEvent(_cursor(row[0], row[1]), _event_of(tx, row[1:])) for row in found]


def newest_events(tx: Transaction, before: int | None = None, limit: int = 100) -> list[Event]:
    """The Events as they are now, the newest first; with `before`, those older than that id."""
    older = "" if before is None else "WHERE id < :before "
    params = {} if before is None else {"before": before}
    found = tx.rows(f"SELECT {_FIELDS} FROM events {older}ORDER BY id DESC LIMIT :limit", limit=limit, **params)
    return [_event_of(tx, row) for row in found]


def latest_cursor(tx: Transaction) -> str:
    """The cursor of a reader who wants only what is not to be read yet."""
    if tx.dialect == "sqlite":
        row = tx.one("SELECT max(id) FROM events")
        return str(row[0] or 0) if row else "0"
    return _cursor(_floor(tx), 0)


def _is_held_up(tx: Transaction) -> bool:
    """Whether events that were committed a while ago are not shown, because some older transaction is still open."""
    return (
        tx.one(
            "SELECT 1 FROM events WHERE xid >= pg_snapshot_xmin(pg_current_snapshot()) AND at < :before LIMIT 1",
            before=tx.now - PATIENCE,
        )
        is not None
    )


def _floor(tx: Transaction) -> str:
    """The oldest transaction that can still write events: one that is open in another database of the server cannot."""
    row = tx.one(
        "SELECT coalesce(min(open.xid::text::bigint)::text, pg_snapshot_xmax(pg_current_snapshot())::text) "
        "FROM pg_snapshot_xip(pg_current_snapshot()) AS open(xid) "
        "WHERE mod(open.xid::text::bigint, 4294967296) NOT IN (SELECT l.transactionid::text::bigint "
        "FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid JOIN pg_database d ON d.oid = a.datid "
        "WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted "
        "AND d.datname <> current_database())"
    )
    assert row is not None
    return str(row[0])


def _cursor(xid: str, event_id: int) -> str:
    return f"{xid}-{event_id}" if xid else str(event_id)


def _sqlite_cursor(text: str) -> int:
    return _number(text, text)


def _postgres_cursor(tx: Transaction, text: str) -> tuple[str, int]:
    xid, dash, event_id = text.partition("-")
    if not dash:
        # The plain id of an event, as a page shows it: its transaction is the other half of its place.
        wanted = _number(text, text)
        row = tx.one("SELECT xid::text, id FROM events WHERE id = :id", id=wanted)
        if row is None:
            # It was pruned: its reader goes on after what stood before it, or from the beginning.
            row = tx.one(
                "SELECT xid::text, id FROM events WHERE id < :id AND xid < pg_snapshot_xmin(pg_current_snapshot())"
                " ORDER BY id DESC LIMIT 1",
                id=wanted,
            )
        return (str(row[0]), row[1]) if row is not None else ("0", 0)
    return str(_number(xid, text)), _number(event_id, text)


def _number(digits: str, whole: str) -> int:
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19 or int(digits) > _INT_MAX:
        raise _refused(whole)
    return int(digits)


def _refused(text: str) -> Invalid:
    return Invalid(
        f"{text[:60]!r} is no id of an event of this store; go on from an id that the stream gave you, or leave it "
        "out.",
        code="invalid_cursor",
        field="after",
    )


def _event_of(tx: Transaction, row: Sequence[Any]) -> Event:
    return Event(
        name=row[1],
        at=tx.instant(row[2]),
        job_id=row[3],
        run_id=row[4],
        worker_id=row[5],
        group_id=row[6],
        schedule_id=row[7],
        data=json.loads(row[8]) if row[8] else {},
        id=row[0],
    )


def last_event_at(tx: Transaction) -> datetime | None:
    """When the newest event happened."""
    row = tx.one("SELECT at FROM events ORDER BY id DESC LIMIT 1")
    return None if row is None else tx.time(row[0])
