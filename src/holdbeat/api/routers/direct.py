"""Direct requests: the next free slot, and an answer in the same breath."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection

from starlette.requests import Request
from starlette.responses import Response

from holdbeat.api.problem import HandlerFailed, Interrupted, answer
from holdbeat.api.request import ApiRequest
from holdbeat.api.routes import CURSOR, LIMIT, Endpoint, Parameter, Routes
from holdbeat.api.schemas.base import CancelRequest
from holdbeat.api.schemas.jobs import Explanation
from holdbeat.api.schemas.others import DirectAnswer, DirectRequest, Reservation, ReservationPage
from holdbeat.domain.bounds import check_duration_s, check_line
from holdbeat.domain.errors import Conflict, HoldbeatError, Invalid
from holdbeat.domain.reservation import ReservationOutcome, ReservationStatus
from holdbeat.domain.run import ErrorKind
from holdbeat.domain.views import reservation_json
from holdbeat.engine.direct_execution import DirectResult, WaitedTooLong
from holdbeat.handlers.shell import SHELL
from holdbeat.observe.explain_reservation import explain_reservation, reservation_with_estimate, reservations_page
from holdbeat.store.running.reservations import cancel_reservation

routes = Routes("direct")
REFUSES = (409, 502, 504)


class ClientGone(HoldbeatError):
    """Nobody is left to answer."""

    default_code = "client_gone"


@routes.post("/api/direct/{type}", body=DirectRequest, body_optional=True, answers={200: DirectAnswer}, refuses=REFUSES)
async def run_direct(call: ApiRequest) -> Response:
    """Run a job type in the next free slot, ahead of the queue, and wait for its result. It makes no job."""
    return await direct(call, call.path("type"))


def mapped(path: str, type_: str, taken: Collection[str] = ()) -> Endpoint:
    """What serves an extra path that the settings map to a type (DIR-05), under a name that is not taken yet."""

    async def run_mapped(call: ApiRequest) -> Response:
        return await direct(call, type_)

    name = "run_direct" + "".join(sign if sign.isalnum() else "_" for sign in path)
    while name in taken:
        name += "_"
    run_mapped.__name__ = name
    run_mapped.__doc__ = f"Run {type_} in the next free slot, ahead of the queue, and wait for its result."
    return run_mapped


async def direct(call: ApiRequest, type_: str) -> Response:
    """A direct request, cancelled when its client goes away."""
    check_line(type_, "type", 200)
    if type_ == SHELL:
        call.require_admin("A direct shell request")
    given = await call.fields(("params", "wait_s"), may_be_empty=True)
    params = given.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise Invalid("params must be an object.", code="invalid_params", field="params")
    wait_s = given.get("wait_s")
    if wait_s is not None:
        check_duration_s(wait_s, "wait_s", 0, 86_400)
    work = asyncio.ensure_future(call.service.supervisor.direct.request(type_, params, wait_s))
    gone = asyncio.ensure_future(_disconnected(call.request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError, HoldbeatError):
                await work
            raise ClientGone("The client went away.")
        return _answer(await work)
    finally:
        gone.cancel()
        work.cancel()


async def _disconnected(request: Request) -> None:
    """Returns when the client has gone; the body has been read, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _answer(result: DirectResult) -> Response:
    reservation = result.reservation
    match reservation.outcome:
        case ReservationOutcome.COMPLETED | ReservationOutcome.SKIPPED:
            shown = {
                "reservation_id": reservation.id,
                "outcome": reservation.outcome,
                "result": reservation.result,
                "waited_s": result.waited_s,
                "ran_s": result.ran_s,
            }
            if reservation.outcome is ReservationOutcome.SKIPPED:
                shown["reason"] = reservation.error
            return answer(shown)
        case ReservationOutcome.FAILED if reservation.error_kind == ErrorKind.INTERRUPTED:
            raise Interrupted(
                f"The server shut down while this ran: {reservation.error} It may have had effects; look before you "
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
        case ReservationOutcome.CANCELLED:
            raise Conflict(
                f"The direct request was cancelled: {reservation.error}.",
                code="cancelled",
                reservation_id=reservation.id,
            )
    raise WaitedTooLong(
        f"The reservation {reservation.id} is {reservation.status}; send the request again.",
        code="expired",
        reservation_id=reservation.id,
    )


@routes.get(
    "/api/reservations",
    answers={200: ReservationPage},
    parameters=(
        Parameter("status", "Only reservations of this status.", {"enum": list(ReservationStatus)}),
        LIMIT,
        CURSOR,
    ),
)
async def list_direct_reservations(call: ApiRequest) -> Response:
    """List reservations, the newest first."""
    status = call.choice("status", ReservationStatus)
    wanted = None if status is None else ReservationStatus(status)
    return answer(await call.service.store.read(reservations_page, wanted, call.limit, call.cursor))


@routes.get("/api/reservations/{id}", answers={200: Reservation})
async def get_reservation(call: ApiRequest) -> Response:
    """Read one reservation."""
    return answer(await call.service.store.read(reservation_with_estimate, call.id("reservation")))


@routes.get("/api/reservations/{id}/explain", answers={200: Explanation})
async def explain_direct_reservation(call: ApiRequest) -> Response:
    """Say why a direct request waits, runs, or how it ended, and when it will probably start."""
    return answer(await call.service.store.read(explain_reservation, call.id("reservation")))


@routes.post(
    "/api/reservations/{id}/cancel", body=CancelRequest, body_optional=True, answers={200: Reservation}, refuses=(409,)
)
async def cancel_direct_reservation(call: ApiRequest) -> Response:
    """Cancel a direct request, whether it waits or runs."""
    reservation_id = call.id("reservation")
    given = await call.fields(("reason",), may_be_empty=True)
    reason = given.get("reason")
    if reason is not None:
        check_line(reason, "reason", 500)
    cancelled = await call.service.store.write(cancel_reservation, reservation_id, reason)
    return answer({**reservation_json(cancelled), "estimated_start": None})
