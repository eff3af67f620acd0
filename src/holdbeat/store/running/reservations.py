"""Reservations: direct requests, borrowed slots and requests through gates in line for the next slot of their pool.

Guards DIR-03: whatever a client does, its reservation ends once. One that is being served is over for the client at
once, while its lease stays until the handler has really ended, so that no slot is given out twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from holdbeat.domain import events
from holdbeat.domain.errors import Conflict
from holdbeat.domain.job import PREEMPTS, NewJob
from holdbeat.domain.params import dumps
from holdbeat.domain.reservation import Reservation, ReservationOutcome, ReservationStatus
from holdbeat.store.jobs.cancel import check_reason
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.reads.pagination import Conditions, Cursors, Page, read_table_page
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction


def reserve(tx: Transaction, work: NewJob, owner: str, reservation_s: float, client: str | None = None) -> Reservation:
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
        weight=work.weight,
        preempts=bool(work.preemption & PREEMPTS),
        title=work.title,
        client=client,
        trace=work.trace,
    )
    put_in_line(tx, reservation)
    return reservation


def put_in_line(tx: Transaction, reservation: Reservation) -> None:
    """Stores a reservation that waits for its slot."""
    tx.insert(
        "direct_reservations",
        (
            "id", "type", "resource", "status", "params", "timeout_s", "cancel_grace_s", "requested_at", "expires_at",
            "owner", "partition", "kind", "title", "client", "ttl_s", "weight", "preempts",
            "trace",
        ),
        [
            (
                reservation.id, reservation.type, reservation.resource, reservation.status, dumps(reservation.params),
                reservation.timeout_s, reservation.cancel_grace_s, reservation.requested_at, reservation.expires_at,
                reservation.owner, reservation.partition, reservation.kind, reservation.title, reservation.client,
                reservation.ttl_s, reservation.weight, reservation.preempts, reservation.trace,
            )
        ],
    )  # fmt: skip
    tx.record(
        events.RESERVATION_REQUESTED,
        worker_id=reservation.owner,
        reservation_id=reservation.id,
        type=reservation.type,
    )
    tx.wake(Topic.READY, *([Topic.PREEMPT] if reservation.preempts else []))


def extend(tx: Transaction, ids: Collection[str], reservation_s: float) -> list[str]:
    """Keeps reservations from expiring for which somebody waits or which a server serves.

    Answers which are still in force. A borrowed slot is extended by who holds it (`extend_slot`).
    """
    rows = tx.rows(
        "UPDATE direct_reservations SET expires_at = :expires_at WHERE id IN :ids AND status = 'ACTIVE' "
        "AND NOT (kind = 'slot' AND granted_at IS NOT NULL) RETURNING id",
        expires_at=tx.now + timedelta(seconds=reservation_s),
        ids=sorted(ids),
    )
    return [row[0] for row in rows]


def late_reservations(tx: Transaction, ids: Sequence[str], dead_workers: Collection[str]) -> set[str]:
    """Those of the given reservations that only the clock speaks against: their owner, if they have one, lives."""
    rows = tx.rows(
        "SELECT r.id, r.owner FROM direct_reservations r LEFT JOIN workers w ON w.id = r.owner "
        "WHERE r.id IN :ids AND ((w.id IS NOT NULL AND w.stopped_at IS NULL) "
        "OR (r.owner IS NULL AND r.kind <> 'direct'))",
        ids=ids,
    )
    return {row[0] for row in rows if row[1] not in dead_workers}


def cancel_reservation(tx: Transaction, reservation_id: str, reason: str | None = None) -> Reservation:
    """Ends a reservation on request. One that has ended already is a Conflict.

    A waiting one simply leaves the line. One that has its slot ends for its client now; whoever works in the slot is
    told, and the slot is free when that has ended. The holder of a borrowed slot cannot extend it any more.
    """
    check_reason(reason)
    reservation = RESERVATIONS.get(tx, reservation_id, locked=True)
    if reservation.status is not ReservationStatus.ACTIVE:
        raise Conflict(
            f"Reservation {reservation_id} has ended already: it is {reservation.status}. There is nothing to cancel.",
            code="already_ended",
            reservation_id=reservation_id,
        )
    return _release(tx, reservation, reason or "cancelled by request")


def give_up_waiting(tx: Transaction, reservation_id: str, waited_s: float) -> Reservation:
    """Takes a request out of the line because nobody served it in time; one that has been granted is left alone."""
    reservation = RESERVATIONS.get(tx, reservation_id, locked=True)
    if not reservation.waits:
        return reservation
    return _release(tx, reservation, f"waited longer than {waited_s:g} s for a free slot")


def list_reservations(
    tx: Transaction, *, status: ReservationStatus | None = None, limit: int | None = None, cursor: str | None = None
) -> Page[Reservation]:
    """Reservations, the newest first."""
    # Written out, so that the index of the active ones is seen to fit.
    conditions = Conditions([] if status is None else [f"status = '{ReservationStatus(status).value}'"])
    return read_table_page(tx, Cursors("reservations", {"status": status}), RESERVATIONS, conditions, limit, cursor)


def waiting_line(tx: Transaction) -> list[Reservation]:
    """All requests that wait for a slot, in the order in which they will be served (DIR-01)."""
    return RESERVATIONS.all(tx, "WHERE status = 'ACTIVE' AND granted_at IS NULL ORDER BY requested_at, id")


def place_in_line(tx: Transaction, reservation_id: str) -> int | None:
    """How many requests that share a limit with it go first; None if it does not wait."""
    line = waiting_line(tx)
    own = next((reservation for reservation in line if reservation.id == reservation_id), None)
    if own is None:
        return None
    limits = limits_in_force(tx)
    pools = set(limits.covering(own.resource, own.type))
    ahead = line[: line.index(own)]
    return sum(1 for earlier in ahead if pools.intersection(limits.covering(earlier.resource, earlier.type)))


def end_active(
    tx: Transaction,
    reservation_id: str,
    worker_id: str | None,
    outcome: ReservationOutcome,
    error: str | None,
    error_kind: str | None,
    result: str | None = None,
) -> None:
    """Ends a direct request whose handler has ended; one that was ended before stays as it is."""
    released = tx.rows(
        "UPDATE direct_reservations SET status = 'RELEASED', finished_at = :now, outcome = :outcome, error = :error, "
        "error_kind = :kind, result = :result WHERE id = :id AND status = 'ACTIVE' RETURNING id",
        id=reservation_id,
        now=tx.now,
        outcome=outcome,
        error=error,
        kind=error_kind,
        result=result,
    )
    if released:
        ids = {"worker_id": worker_id, "reservation_id": reservation_id}
        tx.record(events.RESERVATION_RELEASED, **ids, outcome=outcome, error_kind=error_kind)


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


def lease_of_reservation(tx: Transaction, reservation_id: str) -> tuple[str | None] | None:
    """Whoever holds a slot for it, which is a worker or None for a program that borrowed it; None if nobody does."""
    row = tx.one("SELECT worker_id FROM leases WHERE reservation_id = :id", id=reservation_id)
    return None if row is None else (row[0],)
