"""How a reservation stands: its place in line, who holds the slots, when its turn will come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdbeat.domain.redaction import redacted_params
from holdbeat.domain.reservation import Reservation, ReservationKind, ReservationOutcome, ReservationStatus
from holdbeat.domain.views import reservation_json
from holdbeat.observe.explain_limits import pool_words, rate_limited, resource_full, throttled
from holdbeat.observe.explain_waiting import after_the_busy, no_worker, workers_busy
from holdbeat.observe.wording import answer, counted, moment, reason, sentence, span
from holdbeat.store.reads.blockers import Blockers
from holdbeat.store.reads.estimates import estimate_grant
from holdbeat.store.reads.lease_holders import SlotHolder, holders_of_pool
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.running.reservations import (
    lease_of_reservation,
    list_reservations,
    place_in_line,
)
from holdbeat.store.running.run_output import read_progress
from holdbeat.store.transaction import Transaction

_ENDS: dict[ReservationOutcome | ReservationStatus, str] = {
    ReservationOutcome.COMPLETED: "It completed",
    ReservationOutcome.FAILED: "It failed",
    ReservationOutcome.SKIPPED: "It was skipped",
    ReservationOutcome.CANCELLED: "It was cancelled",
    ReservationStatus.RELEASED: "It was released",
    ReservationStatus.EXPIRED: "It expired",
    ReservationStatus.ACTIVE: "It ended",
}


def explain_reservation(tx: Transaction, reservation_id: str) -> dict[str, Any]:
    """Why a reservation waits, holds its slot, or how it ended; in the same form as a job's explanation."""
    reservation = RESERVATIONS.get(tx, reservation_id)
    if reservation.status is not ReservationStatus.ACTIVE:
        return _ended(tx, reservation)
    return _waiting(tx, reservation) if reservation.waits else _running(tx, reservation)


def reservations_page(
    tx: Transaction, status: ReservationStatus | None = None, limit: int | None = None, cursor: str | None = None
) -> dict[str, Any]:
    """Reservations, the newest first, as JSON; those that wait with their estimated start (API-06)."""
    page = list_reservations(tx, status=status, limit=limit, cursor=cursor)
    return {"items": _with_estimates(tx, page.items), "next_cursor": page.next_cursor}


def reservation_with_estimate(tx: Transaction, reservation_id: str) -> dict[str, Any]:
    """One Reservation as JSON, with its estimated start, and what is kept of a direct request."""
    reservation = RESERVATIONS.get(tx, reservation_id)
    progress = read_progress(tx, reservation_id)
    return {
        **_with_estimates(tx, [reservation])[0],
        "params": redacted_params(reservation.type, reservation.params),
        "progress": None if progress is None else {"fraction": progress[0], "message": progress[1]},
        "result": reservation.result,
        "error_kind": reservation.error_kind,
    }


def _with_estimates(tx: Transaction, reservations: Sequence[Reservation]) -> list[dict[str, Any]]:
    blockers = Blockers(tx) if any(reservation.waits for reservation in reservations) else None
    answers = []
    for reservation in reservations:
        start = None
        if blockers is not None and reservation.waits:
            busy = _busy(tx, reservation, blockers)[1]
            start = after_the_busy(tx, estimate_grant(tx, reservation, blockers), busy)
        answers.append(reservation_json(reservation, start))
    return answers


def _busy(
    tx: Transaction, reservation: Reservation, blockers: Blockers
) -> tuple[list[dict[str, Any]], list[SlotHolder]]:
    """The work that keeps the workers busy that could serve it, as reasons and as work; nothing without a worker."""
    if any(worker.can_serve(reservation.resource, reservation.type) for worker in blockers.workers):
        return workers_busy(tx, reservation, blockers.workers)
    return [], []


def _waiting(tx: Transaction, reservation: Reservation) -> dict[str, Any]:
    blockers = Blockers(tx)
    reasons = []
    busy: list[SlotHolder] = []
    if reservation.expires_at <= tx.now:
        detail = f"It ran out at {moment(reservation.expires_at, tx.now)}: nobody waits for it, recovery will end it."
        reasons.append(reason("expired", detail, expires_at=reservation.expires_at, owner=reservation.owner))
    kind = reservation.resource, reservation.type, reservation.partition
    if blockers.capacity.throttled_until(*kind) is not None:
        reasons += throttled(tx, reservation)
    elif blockers.capacity.is_full(*kind):
        reasons += resource_full(tx, reservation)
    elif blockers.capacity.next_start(*kind) is not None:
        reasons += rate_limited(tx, reservation)
    # No worker takes a reservation that is not direct: its holder works in the slot itself.
    if reservation.is_direct:
        if any(worker.can_serve(reservation.resource, reservation.type) for worker in blockers.workers):
            why, busy = workers_busy(tx, reservation, blockers.workers)
            if not reasons or not set(busy) <= set(holders_of_pool(tx, reservation)):
                reasons += why
        else:
            reasons += no_worker(tx, reservation)
    ahead = place_in_line(tx, reservation.id)
    if ahead:
        are = "is" if ahead == 1 else "are"
        detail = f"{counted(ahead, 'reservation')} {are} ahead of it in the line for {pool_words(tx, reservation)}."
        reasons.append(reason("reservations_ahead", detail, count=ahead, position=ahead + 1))
    start = after_the_busy(tx, estimate_grant(tx, reservation, blockers), busy)
    waited = span((tx.now - reservation.requested_at).total_seconds())
    summary = f"{_name(reservation)} has waited {waited} for the next slot of {pool_words(tx, reservation)}."
    if reasons:
        summary += f" {reasons[0]['detail']}"
    else:
        free = "a worker has a free slot for it" if reservation.is_direct else "a slot is free"
        reasons = [reason("next", f"It is first in line, and {free}.")]
    if start is not None:
        summary += f" It will probably start at {moment(start, tx.now)}."
    return answer(reservation.status, summary, reasons, start)


def _running(tx: Transaction, reservation: Reservation) -> dict[str, Any]:
    assert reservation.granted_at is not None
    since = moment(reservation.granted_at, tx.now)
    ran = span((tx.now - reservation.granted_at).total_seconds())
    if reservation.is_direct:
        detail = f"It got its slot on {reservation.worker_id} at {since}."
        summary = f"{_name(reservation)} has been running on {reservation.worker_id} for {ran}."
        return answer(
            reservation.status,
            summary,
            [reason("running", detail, since=reservation.granted_at, worker_id=reservation.worker_id)],
        )
    detail = f"It got its slot at {since}."
    if reservation.kind is ReservationKind.SLOT:
        detail += f" It is lost at {moment(reservation.expires_at, tx.now)} unless it is extended."
    holder = f"{reservation.client} holds" if reservation.client else "Its client holds"
    return answer(
        reservation.status,
        f"{_name(reservation)} has its slot of {reservation.resource}: {holder} it since {ran}. {detail}",
        [reason("held", detail, since=reservation.granted_at, client=reservation.client, fence=reservation.fence)],
    )


def _ended(tx: Transaction, reservation: Reservation) -> dict[str, Any]:
    when = moment(reservation.finished_at, tx.now) if reservation.finished_at else "an unknown time"
    outcome = reservation.outcome or reservation.status
    reasons = [
        reason(
            str(outcome).lower(),
            f"{_ENDS[outcome]} at {when}{f': {sentence(reservation.error)}' if reservation.error else '.'}",
            at=reservation.finished_at,
            error=reservation.error,
            error_kind=reservation.error_kind,
        )
    ]
    if outcome != ReservationOutcome.COMPLETED:
        reasons.append(reason("not_retried", "It is not tried again by itself."))
    lease = lease_of_reservation(tx, reservation.id)
    if lease is not None and reservation.is_direct:
        detail = f"Its handler has not ended yet on {lease[0]} and still holds its slot."
        reasons.append(reason("still_running", detail, worker_id=lease[0]))
    elif lease is not None:
        reasons.append(reason("still_held", "Its holder has not given the slot back yet."))
    summary = " ".join(entry["detail"] for entry in reasons)
    return answer(reservation.status, summary.replace("It ", f"{_name(reservation)} ", 1), reasons)


_NAMES = {
    ReservationKind.DIRECT: "Direct request",
    ReservationKind.SLOT: "Borrowed slot",
    ReservationKind.GATE: "Request",
}


def _name(reservation: Reservation) -> str:
    through = f" through {reservation.type}" if reservation.kind is ReservationKind.GATE else ""
    return f"{_NAMES[reservation.kind]} {reservation.id}{through}"
