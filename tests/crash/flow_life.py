"""The part of a life that is about limits, order and slots: what `life.py` does with them, act by act."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdbeat.domain.reservation import ReservationKind
from holdbeat.store.jobs.edit_job import change_job
from holdbeat.store.limits.changes import set_limit
from holdbeat.store.queue.move import move_job
from holdbeat.store.queue.pauses import pause, resume
from holdbeat.store.queue.templates import create_template
from holdbeat.store.running.held_slots import extend_slot, hold_slot, release_slot
from holdbeat.store.running.preemption import preempt

if TYPE_CHECKING:
    from tests.crash.life import Life


async def live_under_limits(life: Life) -> None:
    await life.act("limit-slots", set_limit, "gpu", {"resource": "gpu", "slots": 1})
    await life.act("limit-rate", set_limit, "metered", {"type": "metered", "rate": {"count": 1, "per_s": 20}})
    await _wait_for_a_rate(life)
    await _change_the_order(life)
    await _submit_once(life)
    await _borrow(life)
    await _preempt(life)


async def _wait_for_a_rate(life: Life) -> None:
    """One of two jobs waits for the rate, and the service that each calls asks it to wait once."""
    await life.submit("metered", "metered-1", partition="a")
    await life.submit("metered", "metered-2", partition="b")
    await life.stage.drain()
    for _ in range(4):
        await life.stage.advance(20)


async def _change_the_order(life: Life) -> None:
    """Of those that wait in a pause, one goes first, one gets another priority, and one expires."""
    await life.act("pause", pause, reason="the order is changed")
    jobs = [await life.submit("work", f"ordered-{number}") for number in range(3)]
    await life.act("move", move_job, jobs[2].id, to="top")
    await life.act("change", change_job, jobs[1].id, {"priority": 7})
    await life.submit("work", "expiring", expires_in=5)
    await life.stage.advance(6)
    await life.act("resume", resume)
    await life.stage.drain()


async def _submit_once(life: Life) -> None:
    """Two submissions that become one job, and one from a template."""
    await life.submit("work", "unique-1", unique_key="only", delay=5)
    await life.submit("work", "unique-2", unique_key="only", delay=5, on_duplicate="return")
    await life.act(
        "template", create_template, {"name": "ready-made", "type": "work", "default_params": {"name": "made"}}
    )
    made = await life.app.enqueue_template("ready-made")
    life.diary.write("submitted", key=None, job=made.id)
    await life.stage.advance(6)


async def _borrow(life: Life) -> None:
    held = await life.act("borrow", hold_slot, ReservationKind.SLOT, "gpu", wait_s=60, ttl_s=60.0)
    await life.submit("work", "behind-a-borrower", resource="gpu")
    await life.stage.drain()
    await life.act("extend", extend_slot, held.id, 90.0)
    await life.act("give-back", release_slot, held.id)
    await life.stage.drain()


async def _preempt(life: Life) -> None:
    """A run that agreed to it makes room, and goes on afterwards."""
    await life.submit("yielding", "interrupted", resource="gpu")
    await life.stage.supervisor.dispatcher.step()
    await life.submit("work", "urgent", resource="gpu", priority=50, preempt=True)
    await life.act("preempt", preempt)
    await life.look_for_stops()
    await life.stage.step()
    await life.stage.drain()
