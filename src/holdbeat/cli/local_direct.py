"""A direct request from the command line to the workers on the store of this machine.

Guards DEC-004 for a client without a server: for as long as it waits, this process is known to the store like any other
owner of a reservation, so that its request is expired when it dies, and not before.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Any

from holdbeat import __version__
from holdbeat.domain.errors import Conflict, HoldbeatError
from holdbeat.domain.ids import IdSource
from holdbeat.domain.reservation import ReservationOutcome
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.engine.direct_execution import DirectExecutionHandler, DirectResult
from holdbeat.settings import Settings
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.workers import beat, register_worker, stop_worker


def direct(
    store: PersistenceAdapter, settings: Settings, type_: str, params: dict[str, Any], wait_s: float | None
) -> dict[str, Any]:
    """Runs the type in the next free slot of some worker and answers as the API does."""
    return _answer(asyncio.run(_request(store, settings, type_, params, wait_s)))


async def _request(
    store: PersistenceAdapter, settings: Settings, type_: str, params: dict[str, Any], wait_s: float | None
) -> DirectResult:
    owner = IdSource().new(store.clock.now())
    terms = settings.lease_terms
    me = Worker(owner, WorkerKind.CLI, socket.gethostname(), os.getpid(), slots=0, version=__version__)
    store.announce_alive(owner)
    try:
        await store.write(register_worker, me, terms)
        handler = DirectExecutionHandler(
            store, owner, direct_wait_s=settings.direct_wait_s, reservation_s=settings.reservation_s
        )

        async def stay_known() -> None:
            while True:
                await asyncio.sleep(min(terms.heartbeat_s, settings.reservation_s / 4))
                await store.write(beat, owner, terms)
                await handler.step()

        staying = asyncio.create_task(stay_known())
        try:
            return await handler.request(type_, params, wait_s)
        finally:
            staying.cancel()
            with contextlib.suppress(asyncio.CancelledError, HoldbeatError):
                await staying
    finally:
        with contextlib.suppress(HoldbeatError):
            await store.write(stop_worker, owner)
        store.withdraw_alive(owner)


def _answer(result: DirectResult) -> dict[str, Any]:
    reservation = result.reservation
    if reservation.outcome in (ReservationOutcome.COMPLETED, ReservationOutcome.SKIPPED):
        shown = {
            "reservation_id": reservation.id,
            "outcome": reservation.outcome,
            "result": reservation.result,
            "waited_s": result.waited_s,
            "ran_s": result.ran_s,
        }
        if reservation.outcome is ReservationOutcome.SKIPPED:
            shown["reason"] = reservation.error
        return shown
    if reservation.outcome is ReservationOutcome.CANCELLED:
        raise Conflict(f"The direct request was cancelled: {reservation.error}.", code="cancelled")
    raise HoldbeatError(
        reservation.error or f"The direct request ended {reservation.status}.",
        code="timeout" if reservation.error_kind == "timeout" else "handler_failed",
        reservation_id=reservation.id,
    )
