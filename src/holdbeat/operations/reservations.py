"""Operations on reservations: direct requests, borrowed slots and requests through gates on record."""

from __future__ import annotations

from typing import Any

from holdbeat.domain.bounds import check_choice, check_duration_s
from holdbeat.domain.reservation import ReservationStatus
from holdbeat.domain.views import reservation_json
from holdbeat.observe import explain_reservation as explaining
from holdbeat.operations import checks
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.schemas.field_bounds import LONGEST_SLOT_TTL_S
from holdbeat.store.running import held_slots, reservations
from holdbeat.store.transaction import Transaction


@reads
def list_reservations(
    tx: Transaction,
    context: OperationContext,
    *,
    status: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Any:
    """List reservations, the newest first."""
    chosen = None if status is None else check_choice(ReservationStatus, status, "status")
    return explaining.reservations_page(tx, chosen, limit, cursor)


@reads
def get_reservation(tx: Transaction, context: OperationContext, reservation_id: str) -> Any:
    """Read one reservation."""
    return explaining.reservation_with_estimate(tx, checks.id_of(tx, reservation_id, "reservation"))


@reads
def explain_reservation(tx: Transaction, context: OperationContext, reservation_id: str) -> Any:
    """Explain why a reservation waits, holds its slot or ended as it did, and when it will probably get its slot."""
    return explaining.explain_reservation(tx, checks.id_of(tx, reservation_id, "reservation"))


@writes
def cancel_reservation(
    tx: Transaction, context: OperationContext, reservation_id: str, reason: str | None = None
) -> Any:
    """Cancel a reservation, whether it waits or has its slot."""
    reservation_id = checks.id_of(tx, reservation_id, "reservation")
    return reservation_json(reservations.cancel_reservation(tx, reservation_id, reason))


@writes
def extend_reservation(
    tx: Transaction, context: OperationContext, reservation_id: str, ttl_s: float | None = None
) -> Any:
    """Hold a borrowed slot for longer: for ttl_s from now, or for as long again as it was reserved for."""
    reservation_id = checks.id_of(tx, reservation_id, "reservation")
    return reservation_json(held_slots.extend_slot(tx, reservation_id, None if ttl_s is None else check_ttl(ttl_s)))


@writes
def release_reservation(tx: Transaction, context: OperationContext, reservation_id: str) -> Any:
    """Release a borrowed slot. Releasing it again changes nothing."""
    reservation_id = checks.id_of(tx, reservation_id, "reservation")
    return reservation_json(held_slots.release_slot(tx, reservation_id))


def check_ttl(ttl_s: Any) -> float:
    return check_duration_s(ttl_s, "ttl_s", 1, LONGEST_SLOT_TTL_S)
