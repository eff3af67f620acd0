"""Workers as rows: which there are, which of them live, and which can serve a job."""

from __future__ import annotations

from typing import Any

from holdbeat.domain.clock import from_iso, iso
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.store.reads.columns import Table
from holdbeat.store.reads.pagination import Cursors, Page, check_limit
from holdbeat.store.transaction import Transaction

WORKERS = Table("workers", Worker)


def alive(tx: Transaction) -> tuple[str, dict[str, Any]]:
    """The condition for rows of live workers, with its parameters: not ended, beats not late, not known dead."""
    where, params = "stopped_at IS NULL AND expires_at > :now", {"now": tx.now}
    dead = tx.known_dead()
    return (f"{where} AND NOT (id IN :dead)", {**params, "dead": sorted(dead)}) if dead else (where, params)


def live_workers(tx: Transaction) -> list[Worker]:
    """Workers that live, the oldest first."""
    where, params = alive(tx)
    return WORKERS.all(tx, f"WHERE {where} ORDER BY started_at, id", **params)


def all_workers(tx: Transaction, limit: int = 500) -> list[Worker]:
    """Every worker the store remembers, the newest first."""
    return WORKERS.all(tx, "ORDER BY started_at DESC, id DESC LIMIT :limit", limit=limit)


def list_workers(
    tx: Transaction, *, has_ended_too: bool = False, limit: int | None = None, cursor: str | None = None
) -> Page[Worker]:
    """Workers page by page: those that are alive, the oldest first, or all that are remembered, the newest first."""
    count = check_limit(limit)
    cursors = Cursors("workers", {"all": has_ended_too or None})
    where, params = ("1 = 1", {}) if has_ended_too else alive(tx)
    params["limit"] = count + 1
    if (last := cursors.read(cursor, str, str)) is not None:
        where += f" AND (started_at, id) {'<' if has_ended_too else '>'} (:started_at, :id)"
        params |= {"started_at": from_iso(last[0]), "id": last[1]}
    order = "started_at DESC, id DESC" if has_ended_too else "started_at, id"
    workers = WORKERS.all(tx, f"WHERE {where} ORDER BY {order} LIMIT :limit", **params)
    items = workers[:count]
    if len(workers) <= count:
        return Page(items)
    started_at = items[-1].started_at
    assert started_at is not None
    return Page(items, cursors.write(iso(started_at), items[-1].id))


def has_live_worker_for(tx: Transaction, type_: str, resource: str) -> bool:
    """Whether some live worker that still claims knows this type, serves the resource and has a slot for it."""
    return any(worker.can_serve(resource, type_) for worker in live_workers(tx) if worker.stopping_at is None)


def fires_schedules(tx: Transaction) -> bool:
    """Whether a live process fires schedules: a server or a program that runs its App, not a plain worker."""
    return any(worker.kind in (WorkerKind.SERVE, WorkerKind.EMBED) for worker in live_workers(tx))
