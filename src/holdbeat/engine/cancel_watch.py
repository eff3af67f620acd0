"""CancelWatch: tells handlers of cancellations and preemptions within a second, wherever they come from (CAN-02)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from holdbeat.engine.dispatcher import Dispatcher
from holdbeat.engine.service import Service
from holdbeat.handlers.stop import StopReason
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.preemption import preempted_leases
from holdbeat.store.running.workers import signals
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction

POLL_S = 0.8


class CancelWatch(Service):
    """Looks for cancelled work of this worker: at a wake-up, and while something runs also by the clock."""

    name: ClassVar[str] = "cancel-watch"
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.CANCEL})

    def __init__(self, store: PersistenceAdapter, worker_id: str, dispatcher: Dispatcher) -> None:
        super().__init__(store, POLL_S)
        self._worker_id = worker_id
        self._dispatcher = dispatcher
        self.on_look: Callable[[], None] = lambda: None

    async def step(self) -> list[str]:
        if not self._dispatcher.running:
            return []
        told, preempted = await self.store.read(_told, self._worker_id)
        for lease_id in told:
            self._dispatcher.running.tell(lease_id, StopReason.CANCELLED)
        for lease_id in preempted:
            self._dispatcher.running.tell(lease_id, StopReason.PREEMPTED)
        return [*told, *preempted]


def _told(tx: Transaction, worker_id: str) -> tuple[dict[str, str], list[str]]:
    return signals(tx, worker_id), preempted_leases(tx, worker_id)
