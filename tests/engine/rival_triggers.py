"""What one of several trigger processes does on a shared store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdbeat.domain.clock import ManualClock, from_iso
from holdbeat.engine.schedule_trigger import ScheduleTrigger
from tests.conformance.acts import open_at


def fire_through(url: str, instants: Sequence[str]) -> None:
    """Takes the same steps through time as its rivals, in small batches, so that they meet often."""
    clock = ManualClock(from_iso(instants[0]))
    store = open_at(url, clock=clock, create=False)

    async def steps() -> None:
        trigger = ScheduleTrigger(store, batch=11)
        for instant in instants:
            clock.advance((from_iso(instant) - clock.now()).total_seconds())
            for _ in range(3):
                await trigger.step()

    asyncio.run(steps())
    store.close()
