"""Pausing the queue, or one resource of it.

Guards QUE-04: a pause is a row, so it outlives restarts; what runs goes on, and direct requests are not touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdbeat.domain import events
from holdbeat.domain.bounds import check_line
from holdbeat.domain.submission import check_resource
from holdbeat.schemas.field_bounds import LONGEST_REASON
from holdbeat.store.pausing import EVERYTHING, wait_for_claims
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction

_COLUMNS = "resource, paused_at, paused_by, reason"


@dataclass(frozen=True, slots=True)
class Pause:
    resource: str | None
    """None if everything is paused."""
    paused_at: datetime
    paused_by: str | None
    reason: str | None


def pause(tx: Transaction, resource: str | None = None, *, by: str | None = None, reason: str | None = None) -> Pause:
    """Lets no job of the resource (None: of any) start from now on. One that is paused already stays as it is.

    When the pause is stored, the claims that did not know of it have ended, too.
    """
    name = _name(resource)
    if reason is not None:
        check_line(reason, "reason", LONGEST_REASON)
    wait_for_claims(tx)
    inserted = tx.rows(
        "INSERT INTO queue_pauses (resource, paused_at, paused_by, reason) VALUES (:name, :now, :by, :reason) "
        "ON CONFLICT (resource) DO NOTHING RETURNING resource",
        name=name,
        now=tx.now,
        by=by,
        reason=reason,
    )
    if inserted:
        tx.record(events.QUEUE_PAUSED, resource=name, by=by, reason=reason)
    row = tx.rows(f"SELECT {_COLUMNS} FROM queue_pauses WHERE resource = :name", name=name)[0]
    return _pause_of(tx, row)


def resume(tx: Transaction, resource: str | None = None, *, by: str | None = None) -> bool:
    """Ends a pause of the resource (None: the one of everything) and says whether there was one.

    Pauses of single resources and the pause of everything are ended separately, so ending one does not undo another.
    """
    name = _name(resource)
    ended = tx.rows("DELETE FROM queue_pauses WHERE resource = :name RETURNING resource", name=name)
    if ended:
        tx.record(events.QUEUE_RESUMED, resource=name, by=by)
        tx.wake(Topic.READY)
    return bool(ended)


def list_pauses(tx: Transaction) -> list[Pause]:
    """All pauses in force, that of everything first."""
    return [
        _pause_of(tx, row) for row in tx.rows(f"SELECT {_COLUMNS} FROM queue_pauses ORDER BY resource <> '*', resource")
    ]


def _name(resource: str | None) -> str:
    return EVERYTHING if resource is None else check_resource(resource)


def _pause_of(tx: Transaction, row: tuple[object, ...]) -> Pause:
    name, paused_at, by, reason = row
    return Pause(
        None if name == EVERYTHING else str(name),
        tx.instant(paused_at),
        None if by is None else str(by),
        None if reason is None else str(reason),
    )
