"""PreemptionWatch: interrupts work that agreed to it for work that was submitted to preempt (LIM-13)."""

from __future__ import annotations

from typing import ClassVar

from holdbeat.engine.service import Service
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.preemption import preempt, wants_to_preempt
from holdbeat.store.topics import Topic

LOOK_S = 1.0


class PreemptionWatch(Service):
    name: ClassVar[str] = "preemption-watch"
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.PREEMPT})

    def __init__(self, store: PersistenceAdapter) -> None:
        super().__init__(store, LOOK_S)

    async def step(self) -> int:
        """Looks whether anything wants to preempt, and only then decides; returns how many runs were told to end."""
        if not await self.store.read(wants_to_preempt):
            return 0
        return await self.store.write(preempt)
