"""Slots that are held without a handler: borrowed by a program, or held by a server for a request through a gate.

Guards LIM-12 and CON-002: a held slot is a lease like a run's, so every limit counts it. Whoever does not hold it any
more can neither extend it nor give it back a second time, and the one who gives it back hands it on in the same
transaction.
"""

from __future__ import annotations

from datetime import timedelta

from holdbeat.domain import events
from holdbeat.domain.errors import Conflict
from holdbeat.domain.reservation import Reservation, ReservationKind, ReservationOutcome, ReservationStatus, slot_type
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.running.claim import NOBODY, fill
from holdbeat.store.running.reservations import cancel_reservation, put_in_line
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction


class SlotLost(Conflict):
    """The slot is not held any more: its time was over, or somebody cancelled it."""

    default_code = "slot_lost"


def hold_slot(
    tx: Transaction,
    kind: ReservationKind,
    resource: str,
    *,
    wait_s: float,
    owner: str | None = None,
    type_: str | None = None,
    ttl_s: float | None = None,
    title: str = "",
    client: str | None = None,
) -> Reservation:
    """Puts a request for a slot in line, and grants it in the same transaction if a slot is free.

    While it waits it expires after `wait_s` unless it is extended. `owner` is the process in which somebody waits for
    the slot; without one only the clock ends it.
    """
    reservation = Reservation(
        id=tx.new_id(),
        type=type_ or slot_type(resource),
        resource=resource,
        status=ReservationStatus.ACTIVE,
        requested_at=tx.now,
        expires_at=tx.now + timedelta(seconds=wait_s),
        owner=owner,
        kind=kind,
        title=title,
        client=client,
        ttl_s=ttl_s,
    )
    put_in_line(tx, reservation)
    grant_held(tx)
    return RESERVATIONS.get(tx, reservation.id)


def grant_held(tx: Transaction) -> None:
    """Gives free slots to those who wait for one and need no worker."""
    fill(tx, NOBODY)


def extend_slot(tx: Transaction, reservation_id: str, ttl_s: float | None = None) -> Reservation:
    """Holds a borrowed slot for another `ttl_s` from now; without it, for as long as it was asked for."""
    reservation = _held(tx, reservation_id)
    if ttl_s is not None:
        reservation.ttl_s = ttl_s
    reservation.expires_at = tx.now + timedelta(seconds=reservation.ttl_s or 0)
    tx.execute(
        "UPDATE direct_reservations SET expires_at = :expires_at, ttl_s = :ttl_s WHERE id = :id",
        id=reservation_id,
        expires_at=reservation.expires_at,
        ttl_s=reservation.ttl_s,
    )
    tx.execute(
        "UPDATE leases SET expires_at = :expires_at, heartbeat_at = :now WHERE id = :id",
        id=reservation_id,
        expires_at=reservation.expires_at,
        now=tx.now,
    )
    return reservation


def release_slot(
    tx: Transaction,
    reservation_id: str,
    outcome: ReservationOutcome = ReservationOutcome.COMPLETED,
    error: str | None = None,
    error_kind: str | None = None,
) -> Reservation:
    """Gives a held slot back, and hands it on to who waits for it.

    Giving it back twice changes nothing. One that was cancelled meanwhile stays so; its slot is free from now on.
    """
    reservation = RESERVATIONS.get(tx, reservation_id, locked=True)
    _check_kind(reservation)
    if not _end_lease(tx, reservation_id):
        if reservation.status is ReservationStatus.RELEASED and reservation.outcome is ReservationOutcome.COMPLETED:
            return reservation
        raise _lost(reservation)
    if reservation.status is ReservationStatus.ACTIVE:
        reservation.status, reservation.outcome, reservation.finished_at = ReservationStatus.RELEASED, outcome, tx.now
        reservation.error, reservation.error_kind = error, error_kind
        _close(tx, reservation)
        tx.record(
            events.RESERVATION_RELEASED,
            worker_id=reservation.worker_id,
            reservation_id=reservation_id,
            outcome=outcome,
            error_kind=error_kind,
        )
    grant_held(tx)
    return reservation


def withdraw(tx: Transaction, reservation_id: str, why: str) -> Reservation:
    """Ends a reservation whose client is gone: nobody works in a held slot any more, so it is free at once."""
    reservation = RESERVATIONS.get(tx, reservation_id, locked=True)
    if reservation.is_direct or reservation.granted_at is None:
        return cancel_reservation(tx, reservation_id, why)
    return release_slot(tx, reservation_id, ReservationOutcome.CANCELLED, why, "cancelled")


def end_unextended(tx: Transaction, reservation_id: str) -> bool:
    """Takes a borrowed slot away whose time is over; False if it was extended or given back meanwhile."""
    row = tx.one(
        "SELECT expires_at FROM leases WHERE id = :id AND worker_id IS NULL FOR UPDATE",
        id=reservation_id,
    )
    if row is None or tx.instant(row[0]) > tx.now:
        return False
    reservation = RESERVATIONS.get(tx, reservation_id, locked=True)
    _end_lease(tx, reservation_id)
    if reservation.status is ReservationStatus.ACTIVE:
        why = f"its holder did not extend it within {reservation.ttl_s or 0:g} s"
        reservation.status, reservation.outcome = ReservationStatus.EXPIRED, ReservationOutcome.FAILED
        reservation.finished_at, reservation.error, reservation.error_kind = tx.now, f"The slot was lost: {why}", "lost"
        _close(tx, reservation)
        tx.record(events.RESERVATION_EXPIRED, reservation_id=reservation_id, reason=why)
    grant_held(tx)
    return True


def _held(tx: Transaction, reservation_id: str) -> Reservation:
    reservation = RESERVATIONS.get(tx, reservation_id, locked=True)
    _check_kind(reservation)
    if reservation.status is not ReservationStatus.ACTIVE or reservation.granted_at is None:
        raise _lost(reservation)
    return reservation


def _check_kind(reservation: Reservation) -> None:
    if reservation.is_direct:
        raise Conflict(
            f"Reservation {reservation.id} is a direct request: its worker holds the slot. Cancel it instead.",
            code="not_borrowed",
            reservation_id=reservation.id,
        )


def _lost(reservation: Reservation) -> SlotLost:
    if reservation.waits:
        return SlotLost(
            f"Reservation {reservation.id} still waits for its slot.", code="not_granted", reservation_id=reservation.id
        )
    return SlotLost(
        f"The slot of reservation {reservation.id} is not held any more: it is {reservation.status}"
        f"{f' ({reservation.error})' if reservation.error else ''}. Reserve another one.",
        reservation_id=reservation.id,
    )


def _end_lease(tx: Transaction, reservation_id: str) -> bool:
    rows = tx.rows("DELETE FROM leases WHERE id = :id AND slot IS NULL RETURNING id", id=reservation_id)
    if rows:
        tx.wake(Topic.DIRECT, Topic.SLOTS)
    return bool(rows)


def _close(tx: Transaction, reservation: Reservation) -> None:
    tx.execute(
        "UPDATE direct_reservations SET status = :status, outcome = :outcome, finished_at = :now, error = :error, "
        "error_kind = :kind WHERE id = :id",
        id=reservation.id,
        status=reservation.status,
        outcome=reservation.outcome,
        now=tx.now,
        error=reservation.error,
        kind=reservation.error_kind,
    )
