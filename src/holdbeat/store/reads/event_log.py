"""The log of Events, read in the order in which it was committed.

Guards API-04: a reader that continues from an id it was given gets every later Event once. On PostgreSQL ids are given
out before the commit, so a lower one can appear after a higher one has been read. There the order is (transaction, id),
and only transactions older than every open one are shown: nothing can appear before them any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.events import Event
from holdbeat.store.event_batches import BATCH_COLUMNS, BATCH_MAX, unpacked
from holdbeat.store.rare_events import RARE
from holdbeat.store.transaction import Transaction

_FIELDS = f"id, {', '.join(BATCH_COLUMNS)}"
# The xid is named with its table: a bare one would be the text that is chosen, in which 1000 comes before 999.
_COLUMNS = {"sqlite": f"'', {_FIELDS}", "postgres": f"events.xid::text, {_FIELDS}"}
_INT_MAX = 2**63 - 1
VISIBLE_WITHIN = timedelta(seconds=2)
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
    params: dict[str, Any] = {}
    place = ("", 0)
    if tx.dialect == "sqlite":
        if after is not None:
            place = ("", _number(after, after))
            where.append("id > :id")
            params["id"] = place[1]
    else:
        if _is_held_up(tx):
            where.append("xid < :floor::xid8")
            params["floor"] = _floor(tx)
        else:
            where.append("xid < pg_snapshot_xmin(pg_current_snapshot())")
        if after is not None:
            place = _postgres_cursor(tx, after)
            where.append("(xid, id) > (:xid::xid8, :id)")
            params["xid"], params["id"] = place
    if names is not None:
        where.append("name IN :names")
        params["names"] = list(names)
    if job_id is not None:
        entries = _events_of_job(tx, job_id, " AND ".join(where), params)
        entries.sort(key=lambda entry: (int(entry.xid or 0), entry.id))
    else:
        entries = _first_events(tx, " AND ".join(where), params, limit)
    # The first row may hold Events up to the cursor, too.
    return [entry.logged() for entry in entries if entry.xid != place[0] or entry.id > place[1]][:limit]


def events_of_job(tx: Transaction, job_id: str, limit: int = 500, *, after: int = 0) -> list[LoggedEvent]:
    """The Events of one job as they are now, in order; with `after`, those with a greater id."""
    entries = _events_of_job(tx, job_id, "id > :after", {"after": after})
    entries.sort(key=lambda entry: entry.id)
    return [entry.logged() for entry in entries if entry.id > after][:limit]


def newest_events(tx: Transaction, before: int | None = None, limit: int = 100) -> list[Event]:
    """The Events as they are now, the newest first; with `before`, those older than that id."""
    older = "" if before is None else "id < :before + :most AND id - count + 1 < :before"
    params: dict[str, Any] = {} if before is None else {"before": before, "most": BATCH_MAX}
    amount = "count" if before is None else "CASE WHEN id < :before THEN count ELSE :before - (id - count + 1) END"
    numbered = (
        f"SELECT id, sum(n) OVER (ORDER BY id DESC) - n AS ahead FROM (SELECT id, {amount} AS n FROM events "
        f"{f'WHERE {older} ' if older else ''}ORDER BY id DESC LIMIT :limit) AS newest"
    )
    # What is wanted is the newest end of the log, down to an id. As `id IN (...)` PostgreSQL joined it with all events.
    rows = tx.rows(
        f"SELECT {_COLUMNS[tx.dialect]} FROM events WHERE id >= (SELECT min(id) FROM ({numbered}) AS numbered "
        f"WHERE ahead < :limit){f' AND {older}' if older else ''} ORDER BY id DESC LIMIT :limit",
        limit=limit,
        **params,
    )
    entries = [entry for row in rows for entry in reversed(list(_entries(tx, row)))]
    return [entry.event for entry in entries if before is None or entry.id < before][:limit]


def newest_rare_events(tx: Transaction, names: Sequence[str], before: int | None, limit: int) -> list[Event]:
    """Events of names that are not part of every job's life, by their index, the newest first."""
    rows = [
        row
        for name in names
        for row in tx.rows(
            f"SELECT {_COLUMNS[tx.dialect]} FROM events WHERE {RARE} AND name = :name AND id < :before "
            "ORDER BY id DESC LIMIT :limit",
            name=name,
            before=_INT_MAX if before is None else before,
            limit=limit,
        )
    ]
    entries = sorted((entry for row in rows for entry in _entries(tx, row)), key=lambda entry: -entry.id)
    return [entry.event for entry in entries[:limit]]


@dataclass(slots=True)
class _Entry:
    """One Event with its place in the log."""

    xid: str
    id: int
    event: Event

    def logged(self) -> LoggedEvent:
        return LoggedEvent(_cursor(self.xid, self.id), self.event)


def _entries(tx: Transaction, row: Sequence[Any]) -> Iterator[_Entry]:
    """The Events of one row of _COLUMNS."""
    xid, row_id, *fields, count, batch = row
    for event_id, (name, at, job_id, run_id, worker_id, group_id, schedule_id, data) in unpacked(
        row_id, fields, count, batch
    ):
        event = Event(
            name=name,
            at=tx.instant(at),
            job_id=job_id,
            run_id=run_id,
            worker_id=worker_id,
            group_id=group_id,
            schedule_id=schedule_id,
            data=data,
            id=event_id,
        )
        yield _Entry(xid, event_id, event)


def _first_events(tx: Transaction, where: str, params: dict[str, Any], limit: int) -> list[_Entry]:
    """At least the first `limit` Events of the rows chosen, if there are so many, and no more rows than hold these."""
    if tx.dialect == "sqlite":
        place = "id"
        amount = "CASE WHEN id - count < :id THEN id - :id ELSE count END" if "id" in params else "count"
    else:
        place = "xid, id"
        amount = "count"
        if "id" in params:
            amount = "CASE WHEN xid = :xid::xid8 AND id - count < :id THEN id - :id ELSE count END"
    order = ", ".join(f"events.{column}" for column in place.split(", "))
    rows = tx.rows(
        f"SELECT {_COLUMNS[tx.dialect]} FROM events WHERE ({place}) IN (SELECT {place} FROM (SELECT {place}, sum(n) "
        f"OVER (ORDER BY {place}) - n AS ahead FROM (SELECT {place}, {amount} AS n FROM events WHERE {where} "
        f"ORDER BY {order} LIMIT :limit) AS first) AS numbered WHERE ahead < :limit) ORDER BY {order}",
        limit=limit,
        **params,
    )
    return [entry for row in rows for entry in _entries(tx, row)]


def _events_of_job(tx: Transaction, job_id: str, where: str, params: dict[str, Any]) -> list[_Entry]:
    """The Events of a job in the rows chosen: those with a row of their own, and those that share one.

    Where a shared row can be is known from the job and its run, which keep the instants of these Events.
    """
    columns = _COLUMNS[tx.dialect]
    rows = tx.rows(f"SELECT {columns} FROM events WHERE job_id = :job_id AND {where}", job_id=job_id, **params)
    instants = tx.one(
        "SELECT j.created_at, r.started_at, r.finished_at FROM jobs j LEFT JOIN job_runs r ON r.job_id = j.id "
        "WHERE j.id = :id",
        id=job_id,
    )
    if instants is not None:
        rows += tx.rows(
            f"SELECT {columns} FROM events WHERE batch IS NOT NULL AND at IN :instants AND {where}",
            instants=sorted({tx.instant(value) for value in instants if value is not None}),
            **params,
        )
    return [entry for row in rows for entry in _entries(tx, row) if entry.event.job_id == job_id]


def latest_cursor(tx: Transaction) -> str:
    """The cursor after all visible events: a reader who starts here gets only new ones."""
    if tx.dialect == "sqlite":
        row = tx.one("SELECT max(id) FROM events")
        return str(row[0] or 0) if row else "0"
    return _cursor(_floor(tx), 0)


def _is_held_up(tx: Transaction) -> bool:
    """Whether events that were committed a while ago are not shown, because some older transaction is still open."""
    return (
        tx.one(
            "SELECT 1 FROM events WHERE xid >= pg_snapshot_xmin(pg_current_snapshot()) AND at < :before LIMIT 1",
            before=tx.now - VISIBLE_WITHIN,
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


def _postgres_cursor(tx: Transaction, text: str) -> tuple[str, int]:
    xid, dash, event_id = text.partition("-")
    if not dash:
        # The plain id of an event, as a page shows it: its transaction is the other half of its place.
        number = _number(text, text)
        row = tx.one("SELECT xid::text FROM events WHERE id >= :id AND id - count < :id LIMIT 1", id=number)
        if row is not None:
            return str(row[0]), number
        # It was pruned: its reader goes on after what stood before it, or from the beginning.
        row = tx.one(
            "SELECT xid::text, id FROM events WHERE id < :id AND xid < pg_snapshot_xmin(pg_current_snapshot())"
            " ORDER BY id DESC LIMIT 1",
            id=number,
        )
        return (str(row[0]), row[1]) if row is not None else ("0", 0)
    return str(_number(xid, text)), _number(event_id, text)


def _number(digits: str, cursor: str) -> int:
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19 or int(digits) > _INT_MAX:
        raise _refused(cursor)
    return int(digits)


def _refused(text: str) -> Invalid:
    return Invalid(
        f"{text[:60]!r} is no id of an event of this store; go on from an id that the stream gave you, or leave it "
        "out.",
        code="invalid_cursor",
        field="after",
    )


def last_event_at(tx: Transaction) -> datetime | None:
    """When the newest event happened."""
    row = tx.one("SELECT at FROM events ORDER BY id DESC LIMIT 1")
    return None if row is None else tx.time(row[0])
