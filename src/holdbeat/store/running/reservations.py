"""Reservations: direct requests in line for the next slot of their pool.

Guards DIR-03: whatever a client does, its reservation ends once. One that is being served is over for the client at
once, while its lease stays until the handler has really ended, so that no slot is given out twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.errors import Conflict, NotFound
from holdbeat.domain.job import NewJob
from holdbeat.domain.params import dumps
from holdbeat.domain.reservation import Reservation, ReservationOutcome, ReservationStatus
from holdbeat.store.jobs.cancel import check_reason
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.reads.pagination import Cursors, Page, check_limit
from holdbeat.store.reads.rows import RESERVATION, reservation_of
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction


def reserve(tx: Transaction, work: NewJob, owner: str, reservation_s: float) -> Reservation:
    """Puts a direct request in line. `owner` is the registered worker id of the process in which the client waits."""
    reservation = Reservation(
        id=tx.new_id(),
        type=work.type,
        resource=work.resource,
        status=ReservationStatus.ACTIVE,
        requested_at=tx.now,
        expires_at=tx.now + timedelta(seconds=reservation_s),
        owner=owner,
        params=work.params,
        timeout_s=work.timeout_s,
        cancel_grace_s=work.cancel_grace_s,
        partition=work.partition,
    )
    tx.insert(
        "direct_reservations",
        (
            "id", "type", "resource", "status", "params", "timeout_s", "cancel_grace_s", "requested_at", "expires_at",
            "owner", "partition",
        ),
        [
            (
                reservation.id, work.type, work.resource, reservation.status, dumps(work.params), work.timeout_s,
                work.cancel_grace_s, tx.now, reservation.expires_at, owner, work.partition,
            )
        ],
    )  # fmt: skip
    tx.record(events.RESERVATION_REQUESTED, worker_id=owner, reservation_id=reservation.id, type=work.type)
    tx.wake(Topic.READY)
    return reservation


def extend(
    tx: Transaction, owner: str, reservation_s: float, *, except_ids: Collection[str] = frozenset()
) -> list[str]:
    """Keeps all reservations of an owner from expiring, but for those named; answers which are still in force."""
    params: dict[str, Any] = {"owner": owner, "expires_at": tx.now + timedelta(seconds=reservation_s)}
    but_for = ""
    if except_ids:
        but_for = "AND NOT (id IN :ids) "
        params["ids"] = sorted(except_ids)
    found = tx.rows(
        "UPDATE direct_reservations SET expires_at = :expires_at WHERE status = 'ACTIVE' AND owner = :owner "
        f"{but_for}RETURNING id",
        **params,
    )
    return [row[0] for row in found]


def late_reservations(tx: Transaction, ids: Sequence[str], dead_workers: Collection[str]) -> set[str]:
    """Those of the given reservations that only the clock speaks against: their owner is known and has not ended."""
    found = tx.rows(
        "SELECT r.id, r.owner FROM direct_reservations r JOIN workers w ON w.id = r.owner "
        "WHERE r.id IN :ids AND w.stopped_at IS NULL",
        ids=ids,
    )
    return {row[0] for row in found if row[1] not in dead_workers}


def cancel_reservation(tx: Transaction, reservation_id: str, reason: str | None = None) -> Reservation:
    """Ends a direct request on request. One that has ended already is a Conflict.

    A waiting one simply leaves the line. One that is being served ends for its client now; its handler is told, and
    the slot is free when the handler has ended.
    """
    check_reason(reason)
    reservation = _locked(tx, reservation_id)
    if reservation.status is not ReservationStatus.ACTIVE:
        raise Conflict(
            f"Reservation {reservation_id} has ended already: it is {reservation.status}. There is nothing to cancel.",
            code="already_ended",
            reservation_id=reservation_id,
        )
    return _release(tx, reservation, reason or "cancelled by request")


def give_up_waiting(tx: Transaction, reservation_id: str, waited_s: float) -> Reservation:
    """Takes a request out of the line because nobody served it in time; one that has been granted is left alone."""
    reservation = _locked(tx, reservation_id)
    if not reservation.waits:
        return reservation
    return _release(tx, reservation, f"waited longer than {waited_s:g} s for a free slot")


def load_reservation(tx: Transaction, reservation_id: str) -> Reservation:
    """One Reservation by its id."""
    row = tx.one(f"SELECT {RESERVATION} FROM direct_reservations WHERE id = :id", id=reservation_id)
    if row is None:
        raise _unknown(reservation_id)
    return reservation_of(tx, row)


def list_reservations(
    tx: Transaction, *, status: ReservationStatus | None = None, limit: int | None = None, cursor: str | None = None
) -> Page[Reservation]:
    """Reservations, the newest first."""
    count = check_limit(limit)
    cursors = Cursors("reservations", {"status": status})
    where = ["1 = 1"]
    params: dict[str, Any] = {"limit": count + 1}
    if status is not None:
        # Written out, so that the index of the active ones is seen to fit.
        where.append(f"status = '{ReservationStatus(status).value}'")
    if (last := cursors.read(cursor, str)) is not None:
        where.append("id < :last")
        params["last"] = last[0]
    found = tx.rows(
        f"SELECT {RESERVATION} FROM direct_reservations WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT :limit",
        **params,
    )
    items = [reservation_of(tx, row) for row in found[:count]]
    return Page(items, cursors.write(items[-1].id) if len(found) > count else None)


def waiting_line(tx: Transaction) -> list[Reservation]:
    """All requests that wait for a slot, in the order in which they will be served (DIR-01)."""
    found = tx.rows(
        f"SELECT {RESERVATION} FROM direct_reservations WHERE status = 'ACTIVE' AND granted_at IS NULL "
        "ORDER BY requested_at, id"
    )
    return [reservation_of(tx, row) for row in found]


def place_in_line(tx: Transaction, reservation_id: str) -> int | None:
    """How many requests that share a limit with it go first; None if it does not wait."""
    line = waiting_line(tx)
    mine = next((reservation for reservation in line if reservation.id == reservation_id), None)
    if mine is None:
        return None
    limits = limits_in_force(tx)
    pools = set(limits.covering(mine.resource, mine.type))
    ahead = line[: line.index(mine)]
    return sum(1 for other in ahead if pools.intersection(limits.covering(other.resource, other.type)))


def _locked(tx: Transaction, reservation_id: str) -> Reservation:
    row = tx.one(f"SELECT {RESERVATION} FROM direct_reservations WHERE id = :id FOR UPDATE", id=reservation_id)
    if row is None:
        raise _unknown(reservation_id)
    return reservation_of(tx, row)


def _release(tx: Transaction, reservation: Reservation, why: str) -> Reservation:
    reservation.status = ReservationStatus.RELEASED
    reservation.outcome = ReservationOutcome.CANCELLED
    reservation.finished_at = reservation.cancel_requested_at = tx.now
    reservation.error = why
    reservation.error_kind = "cancelled"
    tx.execute(
        "UPDATE direct_reservations SET status = 'RELEASED', outcome = 'CANCELLED', finished_at = :now, "
        "cancel_requested_at = :now, error = :why, error_kind = 'cancelled' WHERE id = :id",
        id=reservation.id,
        now=tx.now,
        why=why,
    )
    tx.record(
        events.RESERVATION_RELEASED,
        worker_id=reservation.worker_id,
        reservation_id=reservation.id,
        outcome=reservation.outcome,
        reason=why,
    )
    # Jobs that stood back for a waiting request may go on; a handler that serves one must hear of it.
    tx.wake(Topic.DIRECT, Topic.CANCEL if reservation.granted_at else Topic.SLOTS)
    return reservation


def _unknown(reservation_id: str) -> NotFound:
    return NotFound(f"There is no reservation {reservation_id}.", reservation_id=reservation_id)


def worker_of_reservation(tx: Transaction, reservation_id: str) -> str | None:
    """The worker that holds a slot for it; None if none does."""
    row = tx.one("SELECT worker_id FROM leases WHERE reservation_id = :id", id=reservation_id)
    return None if row is None else str(row[0])
