"""Routes of reservations: direct requests, which run in the next free slot, and slots to borrow."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Collection, Coroutine, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdbeat.api.event_feed import HEARTBEAT_S, sse_text
from holdbeat.api.problem import answer, refusal
from holdbeat.api.request import ApiRequest
from holdbeat.api.routers.logs import EVENT_STREAM, streamed
from holdbeat.api.routes import Endpoint, Parameter, Routes
from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.reservation import ReservationStatus
from holdbeat.operations import reservations
from holdbeat.operations.direct import DirectEvent, stream_direct
from holdbeat.operations.direct import reserve_slot as reserve
from holdbeat.operations.direct import run_direct as run
from holdbeat.schemas.base import CancelRequest, Page
from holdbeat.schemas.jobs import Explanation
from holdbeat.schemas.system import (
    BorrowedSlot,
    DirectAnswer,
    DirectRequest,
    ExtendRequest,
    Reservation,
    ReservationDetail,
    SlotRequest,
)
from holdbeat.settings import DirectRoute

routes = Routes("direct")
REFUSES = (409, 502, 504)
SLOT_FIELDS = ("resource", "ttl_s", "wait_s")
_FIELDS = frozenset({"params", "wait_s", "preempt"})


class ClientGone(HoldbeatError):
    """The client has gone: nobody is left to answer."""

    default_code = "client_gone"


@routes.post(
    "/api/direct/{type}",
    body=DirectRequest,
    body_optional=True,
    answers={200: (DirectAnswer, EVENT_STREAM)},
    refuses=REFUSES,
)
async def run_direct(request: ApiRequest) -> Response:
    """Run a job type in the next free slot, ahead of the queue, and wait for its result. It makes no job.

    With `Accept: text/event-stream` the answer is a stream: `waiting`, `granted`, `progress`, `chunk`, then `result` or
    `problem`.
    """
    fields = await request.fields(_FIELDS, may_be_empty=True)
    if wants_stream(request):
        return await stream(request, request.path("type"), fields)
    return answer(await direct(request, request.path("type"), fields))


def mapped(path: str, route: DirectRoute, taken: Collection[str] = ()) -> Endpoint:
    """Serves an extra path that the settings map to a type (DIR-05), under a name that is not taken yet."""

    async def run_mapped(request: ApiRequest) -> Response:
        body = await request.object(may_be_empty=True)
        is_wrapped = not route.bare and (not body or body.keys() <= _FIELDS)
        if wants_stream(request):
            return await stream(request, route.type, body if is_wrapped else {"params": body})
        answered = await direct(request, route.type, body if is_wrapped else {"params": body})
        return answer(answered["result"] if route.bare else answered)

    name = "run_direct" + "".join(sign if sign.isalnum() else "_" for sign in path)
    while name in taken:
        name += "_"
    run_mapped.__name__ = name
    run_mapped.__doc__ = f"Run {route.type} in the next free slot, ahead of the queue, and wait for its result."
    return run_mapped


def wants_stream(request: ApiRequest) -> bool:
    return EVENT_STREAM in (request.header("accept") or "")


async def stream(request: ApiRequest, type_: str, fields: Mapping[str, Any]) -> Response:
    """A direct request as server-sent events, cancelled when its client goes away."""
    context = request.context
    events = stream_direct(
        context.store,
        context.supervisor.direct,
        request.operation_context,
        type_,
        fields.get("params"),
        fields.get("wait_s"),
        fields.get("preempt"),
    )
    # What is refused before it is in line is refused as without a stream.
    return streamed(request, _messages(await anext(events), events))


async def _messages(first: DirectEvent, events: AsyncGenerator[DirectEvent, None]) -> AsyncGenerator[bytes, None]:
    """The text of the events, with a sign of life where nothing happens."""
    async with contextlib.aclosing(events):
        yield _message(first)
        coming = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                await asyncio.wait({coming}, timeout=HEARTBEAT_S)
                if not coming.done():
                    yield b": still here\n\n"
                    continue
                event = coming.result()
                if event is None:
                    return
                yield _message(event)
                coming = asyncio.ensure_future(anext(events, None))
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def _message(event: DirectEvent) -> bytes:
    data = event.data if event.error is None else json.loads(bytes(refusal(event.error).body))
    return sse_text(str(event.sequence), event.name, data)


async def direct(request: ApiRequest, type_: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A direct request, cancelled when its client goes away."""
    handler = request.context.supervisor.direct
    params, wait_s, preempt = (fields.get(name) for name in ("params", "wait_s", "preempt"))
    work = run(handler, request.operation_context, type_, params, wait_s, preempt)
    return await _while_connected(request, work)


async def _while_connected(request: ApiRequest, work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Returns the answer of the work; the work is cancelled when the client goes away."""
    task = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(_disconnected(request.request))
    try:
        await asyncio.wait({task, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, HoldbeatError):
                await task
            raise ClientGone("The client went away.")
        return await task
    finally:
        disconnected.cancel()
        task.cancel()


async def _disconnected(request: Request) -> None:
    """Returns when the client has gone; the body has been read, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


@routes.post("/api/reservations", body=SlotRequest, answers={201: BorrowedSlot}, refuses=(409, 504))
async def reserve_slot(request: ApiRequest) -> Response:
    """Borrow the next free slot of a resource for work of your own. Wait for it, extend it, release it."""
    fields = await request.fields(SLOT_FIELDS, required=("resource",))
    handler = request.context.supervisor.direct
    slot = await _while_connected(request, reserve(handler, request.operation_context, *map(fields.get, SLOT_FIELDS)))
    return answer(slot, 201, {"Location": f"/api/reservations/{slot['id']}"})


routes.operation(
    "GET", "/api/reservations", reservations.list_reservations, name="list_direct_reservations",
    answers={200: Page[Reservation]},
    parameters=(Parameter("status", "Only reservations of this status.", {"enum": list(ReservationStatus)}),),
)  # fmt: skip
routes.operation("GET", "/api/reservations/{id}", reservations.get_reservation, answers={200: ReservationDetail})
routes.operation(
    "GET", "/api/reservations/{id}/explain", reservations.explain_reservation, name="explain_direct_reservation",
    answers={200: Explanation},
)  # fmt: skip
routes.operation(
    "POST", "/api/reservations/{id}/cancel", reservations.cancel_reservation, name="cancel_direct_reservation",
    body=CancelRequest, body_optional=True, answers={200: Reservation}, refuses=(409,),
)  # fmt: skip
routes.operation(
    "POST", "/api/reservations/{id}/extend", reservations.extend_reservation,
    body=ExtendRequest, body_optional=True, answers={200: Reservation}, refuses=(409,),
)  # fmt: skip
routes.operation(
    "POST", "/api/reservations/{id}/release", reservations.release_reservation,
    answers={200: Reservation}, refuses=(409,),
)  # fmt: skip
