"""DirectExecutionHandler: requests for the next free slot that wait in this process.

Guards DEC-004 and LIM-12: a direct request is a row that any worker can serve, so the waiting process and the working
one need not be the same; a borrowed slot is such a row without a worker. Whatever happens to the client, the
reservation is given back: if the store cannot take that just now, that is tried again, and meanwhile nothing
keeps the reservation from expiring.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar

from holdbeat.domain.errors import Conflict, HoldbeatError, NotFound, Unavailable
from holdbeat.domain.lease import Claim, Lease
from holdbeat.domain.reservation import Reservation, ReservationKind, ReservationOutcome, ReservationStatus
from holdbeat.domain.submission import Submission
from holdbeat.engine.running import RunningSet
from holdbeat.engine.service import Service
from holdbeat.engine.slot_granter import SlotGranter
from holdbeat.handlers.stop import StopSignal
from holdbeat.schemas.field_bounds import LONGEST_REASON
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.submission import prepare
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.reads.workers import has_live_worker_for
from holdbeat.store.running.held_slots import hold_slot, release_slot, withdraw
from holdbeat.store.running.reservations import extend, give_up_waiting, reserve
from holdbeat.store.topics import Topic
from holdbeat.store.tracing import current_traceparent

log = logging.getLogger("holdbeat.engine")

POLL_S = 0.5
AT_ONCE_S = 0.5
"""Even a request with `wait_s` 0 must give a worker the time to take a free slot."""
EXTEND_S = 5.0
"""How often the reservations of waiting clients are extended: soon enough to outlive a jump of the wall clock."""
UNOWNED_S = 4 * EXTEND_S
"""How long a reservation stands in line for a process that the store does not know, unless it is extended."""
WITHDRAW_RETRY_S = 0.5
"""How often it is tried to withdraw a request whose client is gone, until that is written."""


@dataclass(frozen=True, slots=True)
class DirectResult:
    """How a direct request went."""

    reservation: Reservation
    waited_s: float
    ran_s: float


@dataclass(slots=True)
class HeldSlot:
    """A slot that this process holds without a handler, and how what was done in it ended."""

    reservation: Reservation
    stop: StopSignal
    outcome: ReservationOutcome = ReservationOutcome.COMPLETED
    error: str | None = None
    error_kind: str | None = None

    def end(self, outcome: ReservationOutcome, error: str, error_kind: str) -> None:
        self.outcome, self.error, self.error_kind = outcome, error, error_kind


class WaitedTooLong(HoldbeatError):
    """No slot became free in time (HTTP 504)."""

    default_code = "waited_too_long"


class DirectExecutionHandler(Service):
    """Makes reservations, waits for them, and keeps those of this process from expiring.

    `owner` is the id under which the store knows this process; None for a program that only borrows slots.
    """

    name: ClassVar[str] = "direct"

    def __init__(
        self,
        store: PersistenceAdapter,
        owner: str | None,
        *,
        direct_wait_s: float = 300,
        reservation_s: float = 600,
        lease_s: float = 300,
    ) -> None:
        self._extend_s = min(EXTEND_S, reservation_s / 4)
        super().__init__(store, self._extend_s)
        self._owner = owner
        self._direct_wait_s = direct_wait_s
        self._reservation_s = reservation_s
        self._lease_s = lease_s
        self._waiting: set[str] = set()
        """Reservations that a caller in this process waits for."""
        self._in_line: set[asyncio.Event] = set()
        """What wakes each request that has no slot yet."""
        self._line_emptied = asyncio.Event()
        self._granter = SlotGranter(store)
        self.running = RunningSet()
        """Where the heartbeat of this process looks for what it must tell to end."""
        self.forget_lease: Callable[[str], None] = lambda lease_id: None
        """Called when a slot is not held here any more."""
        self._is_closed = False
        self._to_withdraw: dict[str, str] = {}
        """Reservations whose clients are gone and whose withdrawal is not written yet, and why."""

    async def step(self) -> int:
        """Withdraws requests whose clients are gone, and extends those whose clients wait here."""
        try:
            await self._withdraw_pending()
        finally:
            if waiting := self._waiting - self._to_withdraw.keys():
                await self.store.write(extend, waiting, self._reservation_s)
        return len(self._waiting)

    async def start(self) -> None:
        self._is_closed = False
        await super().start()

    def close(self) -> None:
        """Answers the requests that still wait for a slot; running ones get their result."""
        self._is_closed = True
        for woken in self._in_line:
            woken.set()

    async def stop(self) -> None:
        """`close`, every request that waited for a slot is out of the queue, and no reservation is extended."""
        self.close()
        await super().stop()
        while self._in_line:
            self._line_emptied.clear()
            await self._line_emptied.wait()
        with contextlib.suppress(Exception):
            await self._withdraw_pending()

    async def request(
        self,
        type_: str,
        params: dict[str, Any],
        wait_s: float | None = None,
        client: str | None = None,
        on_reserved: Callable[[Reservation], None] = lambda reservation: None,
        *,
        preempt: bool = False,
        trace: str | None = None,
    ) -> DirectResult:
        """Runs `type_` in the next free slot and returns how it went. `on_reserved` is told when it is in line.

        The span of its run is below the span that the traceparent `trace` names, or the current one.

        Raises Invalid for an unknown type or unfit params, Unavailable without a worker for it or while shutting
        down, WaitedTooLong if no slot became free in time. If the caller is cancelled, so is the request.
        """
        self._check_open()
        assert self._owner is not None
        work = await self.store.read(prepare, Submission.read({"type": type_, "params": params, "preempt": preempt}))
        work.trace = trace or current_traceparent()
        if not await self.store.read(has_live_worker_for, work.type, work.resource):
            raise Unavailable(
                f"No worker that can run {work.type} on the resource {work.resource} is alive. Start one with "
                "`holdbeat worker`.",
                code="no_worker",
            )
        reserving = self.store.write(reserve, work, self._owner, self._reservation_s, client)
        return _result(await self._obtain(reserving, wait_s, lambda reservation: False, on_reserved=on_reserved))

    async def borrow(
        self, resource: str, ttl_s: float, wait_s: float | None = None, client: str | None = None
    ) -> Reservation:
        """Waits for the next free slot of the resource, which is the caller's for `ttl_s` from then on.

        Raises as `request` does. It is kept with `extend_slot` and given back with `release_slot`.
        """
        self._check_open()
        reserving = self.store.write(
            hold_slot,
            ReservationKind.SLOT,
            resource,
            wait_s=self._reservation_s if self._owner else UNOWNED_S,
            owner=self._owner,
            ttl_s=ttl_s,
            client=client,
        )
        with self._granter:
            reservation = await self._obtain(reserving, wait_s, _has_slot)
        if _has_slot(reservation):
            return reservation
        raise _ended_in_line(reservation)

    @contextlib.asynccontextmanager
    async def hold(
        self, resource: str, type_: str, *, wait_s: float, title: str, client: str | None
    ) -> AsyncIterator[HeldSlot]:
        """Holds the next free slot of the resource while a block runs in this process.

        The heartbeat of this process keeps it. `stop` tells the block that it must end: it was cancelled, the slot is
        lost, or this process shuts down.
        """
        self._check_open()
        assert self._owner is not None
        reserving = self.store.write(
            hold_slot,
            ReservationKind.GATE,
            resource,
            wait_s=self._reservation_s,
            owner=self._owner,
            type_=type_,
            ttl_s=self._lease_s,
            title=title,
            client=client,
        )
        with self._granter:
            reservation = await self._obtain(reserving, wait_s, _has_slot, longest_s=wait_s)
        if not _has_slot(reservation):
            raise _ended_in_line(reservation)
        slot = HeldSlot(reservation, self.running.start(_claim_of(reservation), self.store.clock.monotonic()).stop)
        self._waiting.add(reservation.id)
        try:
            yield slot
        except BaseException:
            if slot.outcome is ReservationOutcome.COMPLETED:
                slot.end(ReservationOutcome.CANCELLED, "the client went away", "cancelled")
            raise
        finally:
            self._waiting.discard(reservation.id)
            await asyncio.shield(self._give_back(slot))

    async def _give_back(self, slot: HeldSlot) -> None:
        reservation_id = slot.reservation.id
        try:
            with contextlib.suppress(Conflict, NotFound):
                await self.store.write(release_slot, reservation_id, slot.outcome, slot.error, slot.error_kind)
        except Exception as error:
            log.warning("a held slot could not be given back yet: %s", error)
            self._to_withdraw[reservation_id] = slot.error or "the request has ended"
            self.wake()
        finally:
            self.forget_lease(reservation_id)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable("This server is shutting down; send the request again.", code="shutting_down")

    async def _obtain(
        self,
        reserving: Coroutine[Any, Any, Reservation],
        wait_s: float | None,
        is_served: Callable[[Reservation], bool],
        longest_s: float | None = None,
        on_reserved: Callable[[Reservation], None] = lambda reservation: None,
    ) -> Reservation:
        """Waits until a reservation has what it is for, or has ended. If the caller is cancelled, it is withdrawn."""
        longest_s = self._direct_wait_s if longest_s is None else longest_s
        wait_limit_s = max(longest_s if wait_s is None else min(wait_s, longest_s), AT_ONCE_S)
        until = self.store.clock.monotonic() + wait_limit_s
        woken = asyncio.Event()
        unsubscribe = self.store.on_topics(asyncio.get_running_loop(), {Topic.DIRECT}, woken.set)
        reserved = asyncio.ensure_future(reserving)
        reservation: Reservation | None = None
        self._in_line.add(woken)
        try:
            # Shielded: a client that goes away just now must not leave a reservation behind that nobody knows of.
            reservation = await asyncio.shield(reserved)
            self._waiting.add(reservation.id)
            on_reserved(reservation)
            while not (reservation.status is not ReservationStatus.ACTIVE or is_served(reservation)):
                await self._wait(reservation, wait_limit_s, until, woken)
                reservation = await self.store.read(RESERVATIONS.get, reservation.id)
                if reservation.granted_at is not None:
                    self._leave_line(woken)
            return reservation
        except BaseException as error:
            why = _in_one_line(error.detail) if isinstance(error, HoldbeatError) else "the client went away"
            await asyncio.shield(self._withdraw(reserved, why))
            raise
        finally:
            if reservation is not None:
                self._waiting.discard(reservation.id)
            self._leave_line(woken)
            unsubscribe()

    def _leave_line(self, woken: asyncio.Event) -> None:
        self._in_line.discard(woken)
        if not self._in_line:
            self._line_emptied.set()

    def _advice(self, wait_limit_s: float) -> str:
        if wait_limit_s < self._direct_wait_s:
            return f"Try again, or allow more time with wait_s, up to {self._direct_wait_s:g} s."
        return "That is as long as this server lets a request wait (direct_wait_s). Try again, or submit a job."

    async def _withdraw(self, reserving: asyncio.Future[Reservation], why: str) -> None:
        try:
            reservation = await reserving
        except Exception:
            return  # the client gets the error, and there is nothing to give back
        self._to_withdraw[reservation.id] = why
        try:
            await self._withdraw_pending()
        except Exception as error:
            log.warning("a reservation without a client could not be withdrawn yet: %s", error)
            self.wake()

    async def _withdraw_pending(self) -> None:
        """Withdraws every request whose client is gone; one that has ended by itself needs no more."""
        try:
            for reservation_id, why in list(self._to_withdraw.items()):
                with contextlib.suppress(Conflict, NotFound):
                    await self.store.write(withdraw, reservation_id, why)
                self._to_withdraw.pop(reservation_id, None)
        finally:
            self.interval_s = min(WITHDRAW_RETRY_S, self._extend_s) if self._to_withdraw else self._extend_s

    async def _wait(self, reservation: Reservation, wait_limit_s: float, until: float, woken: asyncio.Event) -> None:
        """Waits for a change; gives up if it still has no slot by then."""
        left_s = POLL_S
        if reservation.granted_at is None:
            self._check_open()
            left_s = until - self.store.clock.monotonic()
            if left_s <= 0:
                if (await self.store.write(give_up_waiting, reservation.id, wait_limit_s)).granted_at is not None:
                    return
                raise WaitedTooLong(f"No slot became free within {wait_limit_s:g} s. {self._advice(wait_limit_s)}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(POLL_S, max(0.01, left_s))):
                await woken.wait()
        woken.clear()


def _ended_in_line(reservation: Reservation) -> Conflict:
    return Conflict(
        f"The reservation {reservation.id} ended before it had a slot: {reservation.error}.",
        code="cancelled" if reservation.outcome is ReservationOutcome.CANCELLED else "expired",
        reservation_id=reservation.id,
    )


def _claim_of(reservation: Reservation) -> Claim:
    """A slot that is held here without a handler, for the heartbeat and the shutdown."""
    assert reservation.granted_at is not None and reservation.fence is not None and reservation.worker_id is not None
    lease = Lease(
        reservation.id, reservation.worker_id, 0, reservation.resource, reservation.type, reservation.fence,
        reservation.granted_at, reservation.granted_at, reservation.expires_at, reservation_id=reservation.id,
    )  # fmt: skip
    return Claim(lease, reservation)


def _has_slot(reservation: Reservation) -> bool:
    return reservation.status is ReservationStatus.ACTIVE and reservation.granted_at is not None


def _in_one_line(detail: str) -> str:
    """A detail may repeat what a database said; a reason must be fit for every list, or the slot would stay taken."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in detail).split())[:LONGEST_REASON]


def _result(reservation: Reservation) -> DirectResult:
    finished = reservation.finished_at or reservation.requested_at
    granted = reservation.granted_at or finished
    return DirectResult(
        reservation,
        waited_s=round((granted - reservation.requested_at).total_seconds(), 3),
        ran_s=round((finished - granted).total_seconds(), 3),
    )
