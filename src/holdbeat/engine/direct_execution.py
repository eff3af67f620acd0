"""DirectExecutionHandler: a direct request takes the next free slot, and its client waits for the result.

Guards DEC-004: the request is a row that any worker can serve, so the waiting process and the working one need not be
the same. Whatever happens to the client, the reservation is given back: if the store cannot take that just now, it is
owed and tried again, and meanwhile nothing keeps the reservation from expiring.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any, ClassVar

from holdbeat.domain.errors import Conflict, HoldbeatError, NotFound, Unavailable
from holdbeat.domain.reservation import Reservation, ReservationStatus
from holdbeat.domain.submission import Submission
from holdbeat.engine.service import Service
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.cancel import LONGEST_REASON
from holdbeat.store.queue.submission import prepare
from holdbeat.store.reads.workers import has_live_worker_for
from holdbeat.store.running.reservations import (
    cancel_reservation,
    extend,
    give_up_waiting,
    load_reservation,
    reserve,
)
from holdbeat.store.topics import Topic

log = logging.getLogger("holdbeat.engine")

LOOK_S = 0.5
AT_ONCE_S = 0.5
"""Even who will not wait must give a worker the time to take a slot that is free."""
EXTEND_S = 5.0
"""How often the reservations of waiting clients are extended: soon enough to outlive a jump of the wall clock."""
OWED_S = 0.5
"""How often it is tried to withdraw a request whose client is gone, until that is written."""


@dataclass(frozen=True, slots=True)
class DirectResult:
    """How a direct request went."""

    reservation: Reservation
    waited_s: float
    ran_s: float


class WaitedTooLong(HoldbeatError):
    """No slot became free in time (HTTP 504)."""

    default_code = "waited_too_long"


class DirectExecutionHandler(Service):
    """Makes reservations, waits for them, and keeps those of this process from expiring."""

    name: ClassVar[str] = "direct"

    def __init__(
        self, store: PersistenceAdapter, owner: str, *, direct_wait_s: float = 300, reservation_s: float = 600
    ) -> None:
        self._extend_s = min(EXTEND_S, reservation_s / 4)
        super().__init__(store, self._extend_s)
        self._owner = owner
        self._direct_wait_s = direct_wait_s
        self._reservation_s = reservation_s
        self._waiting = 0
        self._is_closed = False
        self._owed: dict[str, str] = {}
        """Reservations whose clients are gone and whose withdrawal is not written yet, and why."""

    async def step(self) -> int:
        """Withdraws what is owed, and extends the reservations of this process while their clients wait."""
        try:
            await self._pay()
        finally:
            if self._waiting:
                owed = frozenset(self._owed)
                await self.store.write(extend, self._owner, self._reservation_s, except_ids=owed)
        return self._waiting

    async def start(self) -> None:
        self._is_closed = False
        await super().start()

    def close(self) -> None:
        """Answers those who still wait for a slot; those who are being served get their result."""
        self._is_closed = True

    async def stop(self) -> None:
        """`close`, and nobody's reservation is extended any more."""
        self.close()
        await super().stop()
        with contextlib.suppress(Exception):
            await self._pay()

    async def request(self, type_: str, params: dict[str, Any], wait_s: float | None = None) -> DirectResult:
        """Runs `type_` in the next free slot and returns how it went.

        Raises Invalid for an unknown type or unfit params, Unavailable without a worker for it or while shutting
        down, WaitedTooLong if no slot became free in time. If the caller is cancelled, so is the request.
        """
        if self._is_closed:
            raise Unavailable("This server is shutting down; send the request again.", code="shutting_down")
        work = await self.store.read(prepare, Submission.read({"type": type_, "params": params}))
        if not await self.store.read(has_live_worker_for, work.type, work.resource):
            raise Unavailable(
                f"No worker that can run {work.type} on the resource {work.resource} is alive. Start one with "
                "`holdbeat worker`.",
                code="no_worker",
            )
        patience_s = self._direct_wait_s if wait_s is None else min(wait_s, self._direct_wait_s)
        patience_s = max(patience_s, AT_ONCE_S)
        until = self.store.clock.monotonic() + patience_s
        woken = asyncio.Event()
        unsubscribe = self.store.on_topics(asyncio.get_running_loop(), {Topic.DIRECT}, woken.set)
        self._waiting += 1
        reserving = asyncio.ensure_future(self.store.write(reserve, work, self._owner, self._reservation_s))
        try:
            # Shielded: a client that goes away just now must not leave a reservation behind that nobody knows of.
            reservation = await asyncio.shield(reserving)
            return await self._wait(reservation, patience_s, until, woken)
        except BaseException as error:
            why = _in_one_line(error.detail) if isinstance(error, HoldbeatError) else "the client went away"
            await asyncio.shield(self._withdraw(reserving, why))
            raise
        finally:
            self._waiting -= 1
            unsubscribe()

    def _advice(self, patience_s: float) -> str:
        if patience_s < self._direct_wait_s:
            return f"Try again, or allow more time with wait_s, up to {self._direct_wait_s:g} s."
        return "That is as long as this server lets a direct request wait (direct_wait_s). Try again, or submit a job."

    async def _withdraw(self, reserving: asyncio.Future[Reservation], why: str) -> None:
        try:
            reservation = await reserving
        except Exception:
            return  # the client hears it, and there is nothing to give back
        self._owed[reservation.id] = why
        try:
            await self._pay()
        except Exception as error:
            log.warning("a direct request without a client could not be withdrawn yet: %s", error)
            self.wake()

    async def _pay(self) -> None:
        """Withdraws every request whose client is gone; one that has ended by itself needs no more."""
        try:
            for reservation_id, why in list(self._owed.items()):
                with contextlib.suppress(Conflict, NotFound):
                    await self.store.write(cancel_reservation, reservation_id, why)
                self._owed.pop(reservation_id, None)
        finally:
            self.interval_s = min(OWED_S, self._extend_s) if self._owed else self._extend_s

    async def _wait(
        self, reservation: Reservation, patience_s: float, until: float, woken: asyncio.Event
    ) -> DirectResult:
        while True:
            now = self.store.clock.monotonic()
            reservation = await self.store.read(load_reservation, reservation.id)
            if reservation.status is not ReservationStatus.ACTIVE:
                return _result(reservation)
            if reservation.granted_at is None:
                if self._is_closed:
                    raise Unavailable("This server is shutting down; send the request again.", code="shutting_down")
                if now >= until:
                    reservation = await self.store.write(give_up_waiting, reservation.id, patience_s)
                    if reservation.granted_at is not None:
                        continue
                    raise WaitedTooLong(f"No slot became free within {patience_s:g} s. {self._advice(patience_s)}")
            left_s = max(0.01, until - now) if reservation.granted_at is None else LOOK_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_S, left_s)):
                    await woken.wait()
            woken.clear()


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
