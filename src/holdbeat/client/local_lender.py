"""Slots that are borrowed from a store of this machine, without a server."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdbeat.client.slot_loan import SlotLoan
from holdbeat.engine.direct_execution import DirectExecutionHandler
from holdbeat.operations.direct import reserve_slot
from holdbeat.operations.operation import OperationContext
from holdbeat.operations.reservations import extend_reservation, release_reservation

if TYPE_CHECKING:
    from holdbeat.settings import Settings
    from holdbeat.store.adapter import PersistenceAdapter


class LocalLender:
    """Lends slots of a store, in the event loop that opens it. The store need not know this process as a worker."""

    def __init__(self, store: PersistenceAdapter, settings: Settings, context: OperationContext) -> None:
        self._store = store
        self._context = context
        self._handler = DirectExecutionHandler(store, None, direct_wait_s=settings.direct_wait_s)

    async def __aenter__(self) -> LocalLender:
        await self._handler.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._handler.stop()

    async def reserve_slot(self, resource: str, *, ttl_s: float | None = None, wait_s: float | None = None) -> Any:
        return await reserve_slot(self._handler, self._context, resource, ttl_s, wait_s)

    async def extend_reservation(self, reservation_id: str, ttl_s: float | None = None) -> Any:
        return await extend_reservation.run(self._store, self._context, reservation_id, ttl_s)

    async def release_reservation(self, reservation_id: str) -> Any:
        return await release_reservation.run(self._store, self._context, reservation_id)


def local_slot(
    store: Callable[[], PersistenceAdapter],
    settings: Settings,
    resource: str,
    *,
    ttl_s: float,
    wait_s: float | None = None,
) -> SlotLoan:
    """A slot that this store lends to this program. The store is asked for in the thread of the loan."""
    context = OperationContext(f"{socket.gethostname()}:{os.getpid()}", True, lambda tx: None)  # type: ignore[arg-type, return-value]
    return SlotLoan(lambda: LocalLender(store(), settings, context), resource, ttl_s=ttl_s, wait_s=wait_s)
