"""Direct requests and borrowed slots: the checks before them and the answers after them, the same for a server and for
a local command."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from holdbeat.domain.bounds import check_duration_s, check_flag, check_line
from holdbeat.domain.clock import iso
from holdbeat.domain.errors import Conflict, HoldbeatError, Invalid, Unavailable
from holdbeat.domain.job import SHELL
from holdbeat.domain.reservation import Reservation, ReservationOutcome, ReservationStatus
from holdbeat.domain.run import ErrorKind
from holdbeat.domain.views import slot_json
from holdbeat.engine.direct_execution import DirectExecutionHandler, DirectResult, WaitedTooLong
from holdbeat.operations.checks import check_admin
from holdbeat.operations.operation import OperationContext
from holdbeat.operations.output import LOG_PAGE, chunk_json
from holdbeat.operations.reservations import check_ttl
from holdbeat.schemas.field_bounds import LONGEST_SLOT_WAIT_S
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.reads.estimates import estimate_grant
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.running.reservations import place_in_line
from holdbeat.store.running.run_output import LogLine, read_logs, read_progress
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction


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
    check_line(type_, "type")
    if type_ == SHELL:
        check_admin(context, "A direct shell request")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise Invalid("params must be an object.", code="invalid_params", field="params")
    if wait_s is not None:
        check_duration_s(wait_s, "wait_s", 0, LONGEST_SLOT_WAIT_S)
    preempts = preempt is not None and check_flag(preempt, "preempt")
    result = await handler.request(
        type_, params, wait_s, context.caller, on_reserved, preempt=preempts, trace=context.traceparent
    )
    return direct_answer(result)


DEFAULT_TTL_S = 60.0


async def reserve_slot(
    handler: DirectExecutionHandler, context: OperationContext, resource: Any, ttl_s: Any = None, wait_s: Any = None
) -> dict[str, Any]:
    """Borrow the next free slot of a resource for work of your own; it counts like any run."""
    check_line(resource, "resource")
    ttl = DEFAULT_TTL_S if ttl_s is None else check_ttl(ttl_s)
    if wait_s is not None:
        check_duration_s(wait_s, "wait_s", 0, LONGEST_SLOT_WAIT_S)
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


POLL_S = 0.5
TOPICS = frozenset({Topic.DIRECT, Topic.LOGS, Topic.PROGRESS})


@dataclass(frozen=True, slots=True)
class DirectEvent:
    """`waiting`, `granted`, `progress`, `chunk`, then `result` or, for an error, `problem`."""

    name: str
    data: dict[str, Any]
    sequence: int = 0
    """Of the last chunk until here."""
    error: HoldbeatError | None = None


@dataclass(frozen=True, slots=True)
class _Snapshot:
    reservation: Reservation
    place: int | None
    estimated_start: str | None
    progress: tuple[float | None, str | None] | None
    chunks: list[LogLine]


async def stream_direct(
    store: PersistenceAdapter,
    handler: DirectExecutionHandler,
    context: OperationContext,
    type_: str,
    params: Any = None,
    wait_s: Any = None,
    preempt: Any = None,
) -> AsyncGenerator[DirectEvent, None]:
    """Runs a direct request, and tells how it goes. What is refused before it is in line is raised.

    If the generator is closed, the request is cancelled.
    """
    reserved: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()
    work = asyncio.ensure_future(run_direct(handler, context, type_, params, wait_s, preempt, reserved.set_result))
    woken = asyncio.Event()
    unsubscribe = store.on_topics(asyncio.get_running_loop(), set(TOPICS), woken.set)
    work.add_done_callback(lambda _: woken.set())
    try:
        either: set[asyncio.Future[Any]] = {work, reserved}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not reserved.done():
            await work
        unsent = _UnsentEvents(reserved.result().id)
        while True:
            woken.clear()
            is_over = work.done()
            for event in unsent.of(await store.read(_read_snapshot, unsent.reservation_id, unsent.sequence)):
                yield event
            if unsent.has_more:
                continue
            if is_over:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await woken.wait()
        try:
            yield DirectEvent("result", await work, unsent.sequence)
        except HoldbeatError as error:
            yield DirectEvent("problem", {"code": error.code, "detail": error.detail}, unsent.sequence, error)
    finally:
        unsubscribe()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError, HoldbeatError):
            await work


class _UnsentEvents:
    """Remembers what was sent, so that each snapshot gives only the events that are new."""

    def __init__(self, reservation_id: str) -> None:
        self.reservation_id = reservation_id
        self.sequence = 0
        self.has_more = False
        self._waiting: dict[str, Any] | None = None
        self._is_granted = False
        self._progress: tuple[float | None, str | None] | None = None

    def of(self, snapshot: _Snapshot) -> list[DirectEvent]:
        reservation = snapshot.reservation
        events = []
        if reservation.waits:
            waiting = {"place": snapshot.place, "estimated_start": snapshot.estimated_start}
            if self._waiting is None or waiting["place"] != self._waiting["place"]:
                self._waiting = waiting
                events.append(DirectEvent("waiting", {"reservation_id": self.reservation_id, **waiting}))
        elif reservation.granted_at is not None and not self._is_granted:
            self._is_granted = True
            granted = {
                "reservation_id": self.reservation_id,
                "granted_at": iso(reservation.granted_at),
                "worker_id": reservation.worker_id,
            }
            events.append(DirectEvent("granted", granted))
        if snapshot.progress is not None and snapshot.progress != self._progress:
            self._progress = snapshot.progress
            events.append(
                DirectEvent(
                    "progress", {"fraction": snapshot.progress[0], "message": snapshot.progress[1]}, self.sequence
                )
            )
        for line in snapshot.chunks:
            self.sequence = line.sequence
            events.append(DirectEvent("chunk", chunk_json(line), line.sequence))
        self.has_more = len(snapshot.chunks) == LOG_PAGE
        return events


def _read_snapshot(tx: Transaction, reservation_id: str, after: int) -> _Snapshot:
    reservation = RESERVATIONS.get(tx, reservation_id)
    place, start = None, None
    if reservation.waits:
        place = (place_in_line(tx, reservation_id) or 0) + 1
        start = estimate_grant(tx, reservation)
    return _Snapshot(
        reservation,
        place,
        None if start is None else iso(start),
        read_progress(tx, reservation_id),
        read_logs(tx, reservation_id, after, LOG_PAGE, emitted=True),
    )
