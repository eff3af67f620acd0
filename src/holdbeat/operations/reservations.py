"""Operations on reservations, which are direct requests on record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdbeat.domain.reservation import ReservationStatus
from holdbeat.domain.views import reservation_json
from holdbeat.observe import explain_reservation as explaining
from holdbeat.operations import checks
from holdbeat.operations.operation import OperationContext, reads, writes
from holdbeat.store.running import reservations

if TYPE_CHECKING:
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
    chosen = None if status is None else checks.check_choice(ReservationStatus, status, "status")
    return explaining.reservations_page(tx, chosen, limit, cursor)


@reads
def get_reservation(tx: Transaction, context: OperationContext, reservation_id: str) -> Any:
    """Read one reservation."""
    return explaining.reservation_with_estimate(tx, checks.existing_id(reservation_id, "reservation"))


@reads
def explain_reservation(tx: Transaction, context: OperationContext, reservation_id: str) -> Any:
    """Explain why a direct request waits, runs or ended as it did, and when it will probably start."""
    return explaining.explain_reservation(tx, checks.existing_id(reservation_id, "reservation"))


@writes
def cancel_reservation(
    tx: Transaction, context: OperationContext, reservation_id: str, reason: str | None = None
) -> Any:
    """Cancel a direct request, whether it waits or runs."""
    checks.existing_id(reservation_id, "reservation")
    cancelled = reservations.cancel_reservation(tx, reservation_id, checks.check_reason(reason))
    return {**reservation_json(cancelled), "estimated_start": None}
