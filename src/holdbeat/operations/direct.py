"""Direct requests and borrowed slots: the checks before them and the answers after them, the same for a server and for
a local command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdbeat.domain.bounds import check_duration_s, check_flag, check_line
from holdbeat.domain.errors import Conflict, HoldbeatError, Invalid, Unavailable
from holdbeat.domain.job import SHELL
from holdbeat.domain.reservation import Reservation, ReservationOutcome, ReservationStatus
from holdbeat.domain.run import ErrorKind
from holdbeat.domain.views import slot_json
from holdbeat.engine.direct_execution import DirectExecutionHandler, DirectResult, WaitedTooLong
from holdbeat.operations.checks import needs_admin
from holdbeat.operations.reservations import check_ttl

if TYPE_CHECKING:
    from holdbeat.operations.operation import OperationContext


class HandlerFailed(HoldbeatError):
    """A direct request's handler did not succeed (HTTP 502)."""

    default_code = "handler_failed"


class Interrupted(Unavailable):
    """A direct request that had begun was ended by a shutdown (HTTP 503). It is not for repeating unseen (DIR-04)."""

    default_code = "interrupted"


async def run_direct(
    handler: DirectExecutionHandler,
    context: OperationContext,
    type_: str,
    params: Any = None,
    wait_s: Any = None,
    preempt: Any = None,
    on_reserved: Callable[[Reservation], None] = lambda reservation: None,
) -> dict[str, Any]:
    """Run a job type in the next free slot, ahead of the queue, and wait for its result. It makes no job."""
    check_line(type_, "type", 200)
    if type_ == SHELL and not context.is_admin:
        raise needs_admin("A direct shell request")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise Invalid("params must be an object.", code="invalid_params", field="params")
    if wait_s is not None:
        check_duration_s(wait_s, "wait_s", 0, 86_400)
    preempts = preempt is not None and check_flag(preempt, "preempt")
    return direct_answer(await handler.request(type_, params, wait_s, context.caller, on_reserved, preempt=preempts))


DEFAULT_TTL_S = 60.0


async def reserve_slot(
    handler: DirectExecutionHandler, context: OperationContext, resource: Any, ttl_s: Any = None, wait_s: Any = None
) -> dict[str, Any]:
    """Borrow the next free slot of a resource for work of your own; it counts like any run."""
    check_line(resource, "resource", 200)
    ttl = DEFAULT_TTL_S if ttl_s is None else check_ttl(ttl_s)
    if wait_s is not None:
        check_duration_s(wait_s, "wait_s", 0, 86_400)
    return slot_json(await handler.borrow(resource, ttl, wait_s, context.caller))


def direct_answer(result: DirectResult) -> dict[str, Any]:
    """The answer to a direct request that has ended, or the error that says how it failed."""
    reservation = result.reservation
    if reservation.status is ReservationStatus.EXPIRED:
        advice = "It had begun and may have had effects; check before you send it again."
        raise WaitedTooLong(
            f"{reservation.error}. {advice if reservation.granted_at else 'It had not begun; send it again.'}",
            code="expired",
            reservation_id=reservation.id,
        )
    match reservation.outcome:
        case ReservationOutcome.COMPLETED | ReservationOutcome.SKIPPED:
            answer = {
                "reservation_id": reservation.id,
                "outcome": reservation.outcome,
                "result": reservation.result,
                "waited_s": result.waited_s,
                "ran_s": result.ran_s,
            }
            if reservation.outcome is ReservationOutcome.SKIPPED:
                answer["reason"] = reservation.error
            return answer
        case ReservationOutcome.FAILED if reservation.error_kind == ErrorKind.INTERRUPTED:
            raise Interrupted(
                f"The worker shut down while this ran: {reservation.error} It may have had effects; check before you "
                "send it again.",
                reservation_id=reservation.id,
                error_kind=reservation.error_kind,
            )
        case ReservationOutcome.FAILED:
            raise HandlerFailed(
                reservation.error or "The handler failed.",
                code="timeout" if reservation.error_kind == "timeout" else "handler_failed",
                reservation_id=reservation.id,
                error_kind=reservation.error_kind,
            )
    raise Conflict(
        f"The direct request was cancelled: {reservation.error}.", code="cancelled", reservation_id=reservation.id
    )
