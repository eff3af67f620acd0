"""`app.slot`: a program's own work takes part in the limits, in an event loop or without one."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdbeat import App
from holdbeat.client.slot_loan import SlotLoan
from holdbeat.domain.errors import Conflict, HoldbeatError
from holdbeat.store.running.reservations import cancel_reservation
from tests.engine.acting import rows, until, value

HOLDER = """
import signal, sys
from holdbeat import App
with App(sys.argv[1]).slot("gpu", ttl=1) as slot:
    print(slot.id, flush=True)
    signal.pause()
"""


@pytest.fixture
def app(store_url: str) -> Iterator[App]:
    app = App(store_url, concurrency="resources:gpu=1", slots=2, heartbeat_s=0.5, recover_s=0.2)
    yield app
    app.close()


@pytest.mark.rule("LIM-12")
@pytest.mark.asyncio
async def test_a_block_holds_the_slot_and_jobs_wait_for_its_end(app: App) -> None:
    ran: list[str] = []

    @app.job(resource="gpu")
    async def work() -> None:
        ran.append("job")

    async with app.running():
        async with app.slot("gpu", ttl=5) as slot:
            handle = await app.enqueue(work)
            assert slot.is_held and slot.number == 0 and slot.fence > 0
            slot.check()
            with pytest.raises(HoldbeatError, match="No slot became free within"):
                async with app.slot("gpu", wait=0.1):
                    ran.append("second block")
            assert ran == []
        await handle.wait()
    assert ran == ["job"]
    assert value(app.store, "SELECT count(*) FROM leases") == 0
    with pytest.raises(Conflict, match="used already"):
        async with slot:
            pass


@pytest.mark.rule("LIM-12")
def test_the_plain_form_blocks_without_an_event_loop_and_extends_while_it_is_held(app: App) -> None:
    entered, order = threading.Event(), []

    def second() -> None:
        entered.wait()
        with app.slot("gpu"):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with app.slot("gpu", ttl=1) as slot:
        first_end = value(app.store, "SELECT expires_at FROM leases")
        entered.set()
        while value(app.store, "SELECT expires_at FROM leases") == first_end:
            assert slot.is_held
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]
    assert rows(app.store, "SELECT status, outcome FROM direct_reservations") == [("RELEASED", "COMPLETED")] * 2


@pytest.mark.rule("LIM-12")
@pytest.mark.asyncio
async def test_a_block_that_raises_or_is_cancelled_gives_its_slot_and_its_place_back(app: App) -> None:
    with pytest.raises(ValueError, match="broken"):
        async with app.slot("gpu"):
            raise ValueError("broken")

    async def hold(loan: SlotLoan, entered: asyncio.Event) -> None:
        async with loan:
            entered.set()
            await asyncio.Event().wait()

    entered = asyncio.Event()
    holding = asyncio.create_task(hold(app.slot("gpu"), entered))
    await entered.wait()
    waiting = asyncio.create_task(hold(app.slot("gpu"), asyncio.Event()))
    await until(lambda: value(app.store, "SELECT count(*) FROM direct_reservations WHERE granted_at IS NULL"))
    for task in (waiting, holding):
        task.cancel()
    await asyncio.gather(waiting, holding, return_exceptions=True)
    assert value(app.store, "SELECT count(*) FROM leases") == 0
    assert value(app.store, "SELECT count(*) FROM direct_reservations WHERE status = 'ACTIVE'") == 0


@pytest.mark.rule("LIM-12")
@pytest.mark.asyncio
async def test_a_holder_learns_that_its_slot_was_taken_away(app: App) -> None:
    async with app.slot("gpu", ttl=1) as slot:
        await app.store.write(cancel_reservation, slot.id, "needed elsewhere")
        await until(lambda: not slot.is_held)
        with pytest.raises(Conflict, match="needed elsewhere"):
            slot.check()
    assert value(app.store, "SELECT count(*) FROM leases") == 0


@pytest.mark.rule("LIM-12", "CON-002")
@pytest.mark.asyncio
async def test_a_holder_that_is_killed_loses_its_slot_after_its_ttl_and_the_next_fence_is_higher(
    app: App, store_url: str
) -> None:
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, store_url, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    lost = (await holder.stdout.readline()).decode().strip()
    fence = value(app.store, "SELECT fence FROM leases")
    holder.kill()
    await holder.wait()
    seen: Any = None
    async with app.running(), app.slot("gpu", wait=60) as slot:
        assert slot.fence > fence
        seen = rows(app.store, "SELECT status, error_kind FROM direct_reservations WHERE id = :id", id=lost)
    assert seen == [("EXPIRED", "lost")]
