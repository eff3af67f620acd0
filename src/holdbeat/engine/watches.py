"""Watches: services that look at the store now and then, and tell or end what must know."""

from __future__ import annotations

import logging
from typing import ClassVar

from holdbeat.domain.attention import OpenReader
from holdbeat.engine.dispatcher import Dispatcher
from holdbeat.engine.service import Service
from holdbeat.handlers.stop import StopReason
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.starvation import has_starvation_changed, note_starvation
from holdbeat.store.migrate import schema_refusal
from holdbeat.store.running.preemption import preempt, preempted_leases, wants_to_preempt
from holdbeat.store.running.workers import signals
from holdbeat.store.topics import Topic

log = logging.getLogger("holdbeat.engine")

POLL_S = 10.0
WARN_AGAIN_S = 300.0
"""How long until the same warning is logged again."""
PREEMPTION_POLL_S = 1.0
CANCEL_POLL_S = 0.8


class SchemaWatch(Service):
    """Ends a process whose store a newer Holdbeat has upgraded: its statements no longer fit the tables (OPS-02)."""

    name: ClassVar[str] = "schema-watch"

    def __init__(self, store: PersistenceAdapter) -> None:
        super().__init__(store, POLL_S)

    async def step(self) -> None:
        refusal = await self.store.read(schema_refusal)
        if refusal is not None:
            raise refusal


class OpenReaderWatch(Service):
    """Warns of a foreign transaction that stays open and costs the store more and more."""

    name: ClassVar[str] = "open-reader-watch"

    def __init__(self, store: PersistenceAdapter) -> None:
        super().__init__(store, POLL_S)
        self._warned_at: float | None = None

    async def step(self) -> OpenReader | None:
        reader = await self.store.read(lambda tx: tx.open_reader())
        now = self.store.clock.monotonic()
        if reader is None:
            self._warned_at = None
        elif self._warned_at is None or now - self._warned_at >= WARN_AGAIN_S:
            self._warned_at = now
            log.warning("%s %s", reader.detail, reader.remedy)
        return reader


class StarvationWatch(Service):
    """Tells when direct requests leave the queue no slot for long (LIM-08)."""

    name: ClassVar[str] = "starvation-watch"

    def __init__(self, store: PersistenceAdapter, starved_s: float) -> None:
        super().__init__(store, min(POLL_S, max(0.2, starved_s / 4)))
        self._starved_s = starved_s

    async def step(self) -> int:
        """Looks, and writes only what is new; returns how many limits began to starve the queue."""
        if not await self.store.read(has_starvation_changed, self._starved_s):
            return 0
        count = await self.store.write(note_starvation, self._starved_s)
        if count:
            log.warning("direct requests have left the queue no slot for %g s", self._starved_s)
        return count


class PreemptionWatch(Service):
    """Interrupts work that agreed to it for work that was submitted to preempt (LIM-13)."""

    name: ClassVar[str] = "preemption-watch"
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.PREEMPT})

    def __init__(self, store: PersistenceAdapter) -> None:
        super().__init__(store, PREEMPTION_POLL_S)

    async def step(self) -> int:
        """Looks whether anything wants to preempt, and only then decides; returns how many runs were told to end."""
        if not await self.store.read(wants_to_preempt):
            return 0
        return await self.store.write(preempt)


class CancelWatch(Service):
    """Tells handlers within a second of cancellations and preemptions, wherever they come from (CAN-02).

    Looks at a wake-up, and while something runs also by the clock.
    """

    name: ClassVar[str] = "cancel-watch"
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.CANCEL})

    def __init__(self, store: PersistenceAdapter, worker_id: str, dispatcher: Dispatcher) -> None:
        super().__init__(store, CANCEL_POLL_S)
        self._worker_id = worker_id
        self._dispatcher = dispatcher

    async def step(self) -> list[str]:
        if not self._dispatcher.running:
            return []
        worker_id = self._worker_id
        cancelled, preempted = await self.store.read(
            lambda tx: (signals(tx, worker_id), preempted_leases(tx, worker_id))
        )
        for lease_id in cancelled:
            self._dispatcher.running.tell(lease_id, StopReason.CANCELLED)
        for lease_id in preempted:
            self._dispatcher.running.tell(lease_id, StopReason.PREEMPTED)
        return [*cancelled, *preempted]
