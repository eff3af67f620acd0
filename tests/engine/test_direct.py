"""A direct request takes the next slot: after what runs, before what waits; and it never outlives its client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdbeat import App
from holdbeat.app import DirectFailed
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Unavailable
from holdbeat.domain.job import JobStatus, NewJob
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.engine.direct_execution import DirectExecutionHandler, WaitedTooLong
from holdbeat.engine.zombie_recovery import ZombieRecovery
from holdbeat.store.firing.upcoming import record_clock_jump
from holdbeat.store.running.reservations import extend, reserve
from holdbeat.store.running.workers import register_worker, stop_worker
from holdbeat.testing import Stage, stage
from tests.conformance.acts import open_at
from tests.engine.acting import Outage, event_names, job, rows, until, value

pytestmark = pytest.mark.asyncio


def noting(order: list[str], gate: asyncio.Event) -> App:
    app = App()

    @app.job(retries=2)
    async def note(name: str) -> str:
        order.append(name)
        if name == "current":
            await gate.wait()
        if name == "broken":
            raise ValueError("boom")
        return name

    return app


async def ask(on_stage: Stage, name: str, **options: Any) -> asyncio.Task[Any]:
    """A client that waits in a task of its own; its reservation is on record when this returns."""
    count = value(on_stage.app.store, "SELECT count(*) FROM direct_reservations")
    task = asyncio.create_task(on_stage.supervisor.direct.request("note", {"name": name}, **options))
    await until(lambda: value(on_stage.app.store, "SELECT count(*) FROM direct_reservations") > count)
    return task


@pytest.mark.rule("DEC-004", "DIR-01", "CON-002")
async def test_current_then_direct_first_come_first_served_then_the_queue(store_url: str, tmp_path: Path) -> None:
    order: list[str] = []
    gate = asyncio.Event()
    app = noting(order, gate)
    clock = ManualClock()
    async with stage(app, tmp_path, clock, store=store_url) as on_stage:
        await app.enqueue("note", name="current")
        dispatcher = on_stage.supervisor.dispatcher
        assert len(await dispatcher.step()) == 1
        await app.with_options(priority=100).enqueue("note", name="queued")
        first = await ask(on_stage, "direct-1")
        clock.advance(0.001)
        second = await ask(on_stage, "direct-2")
        assert await dispatcher.step() == []
        gate.set()
        await until(lambda: not dispatcher.running)
        await on_stage.drain()
        answers = [await first, await second]
    assert order == ["current", "direct-1", "direct-2", "queued"]
    assert [answer.reservation.result for answer in answers] == ["direct-1", "direct-2"]


@pytest.mark.rule("DIR-03")
async def test_who_waits_too_long_is_told_and_leaves_the_line(store_url: str, tmp_path: Path) -> None:
    gate = asyncio.Event()
    app = noting([], gate)
    clock = ManualClock()
    async with stage(app, tmp_path, clock, store=store_url, direct_wait_s=300) as on_stage:
        await app.enqueue("note", name="current")
        after = await app.enqueue("note", name="after")
        await on_stage.supervisor.dispatcher.step()
        waiting = await ask(on_stage, "impatient", wait_s=7)
        clock.advance(6.9)
        app.store.tell(frozenset({"direct"}))
        assert (await asyncio.wait({waiting}, timeout=0.2))[0] == set()
        clock.advance(0.2)
        with pytest.raises(WaitedTooLong, match="within 7 s"):
            await waiting
        assert rows(app.store, "SELECT status, outcome FROM direct_reservations") == [("RELEASED", "CANCELLED")]
        gate.set()
        await until(lambda: not on_stage.supervisor.dispatcher.running)
        await on_stage.drain()
        assert job(app.store, after.id).status is JobStatus.COMPLETED


@pytest.mark.rule("DIR-03")
@pytest.mark.parametrize("moment", ["while it is written", "in line", "while it is served"])
async def test_the_request_of_a_client_that_disconnects_is_released(
    store_url: str, tmp_path: Path, moment: str
) -> None:
    gate = asyncio.Event()
    order: list[str] = []
    app = noting(order, gate)
    async with stage(app, tmp_path, store=store_url) as on_stage:
        dispatcher = on_stage.supervisor.dispatcher
        if moment == "while it is written":
            client = asyncio.create_task(on_stage.supervisor.direct.request("note", {"name": "current"}))
            for _ in range(3):
                await asyncio.sleep(0)
            await until(lambda: client.cancel() and not on_stage.supervisor.direct._waiting)
        else:
            client = await ask(on_stage, "current")
            if moment == "while it is served":
                await dispatcher.step()
                await until(lambda: order)
            client.cancel()
        with pytest.raises(asyncio.CancelledError):
            await client
        assert value(app.store, "SELECT count(*) FROM direct_reservations WHERE status = 'ACTIVE'") == 0
        if moment == "while it is served":
            for service in on_stage.supervisor.services:
                if service.name == "cancel-watch":
                    assert len(await service.step()) == 1
            await until(lambda: not dispatcher.running)
        await on_stage.drain()
        assert value(app.store, "SELECT count(*) FROM leases") == 0
        gate.set()
        after = await app.enqueue("note", name="after")
        await on_stage.drain()
        assert job(app.store, after.id).status is JobStatus.COMPLETED


@pytest.mark.rule("DIR-04")
async def test_a_failed_direct_request_is_never_tried_again(store_url: str) -> None:
    order: list[str] = []
    app = noting(order, asyncio.Event())
    app.settings = app.settings.with_changes(store=store_url)
    async with app.running():
        with pytest.raises(DirectFailed, match="boom"):
            await app.direct("note", name="broken")
        assert app._supervisor is not None
        await app._supervisor.recovery.recover()
    assert order == ["broken"]
    assert value(app.store, "SELECT count(*) FROM jobs") == 0
    app.close()


@pytest.mark.rule("DIR-02", "REC-02")
async def test_a_request_whose_owner_ended_expires_and_the_queue_goes_on(store_url: str, tmp_path: Path) -> None:
    order: list[str] = []
    app = noting(order, asyncio.Event())
    async with stage(app, tmp_path, store=store_url) as on_stage:
        gone = Worker("gone", WorkerKind.SERVE, "host", 1)
        app.store.write_sync(register_worker, gone, app.settings.lease_terms)
        # A type that nobody here can run, so that it cannot be served before its owner is missed.
        app.store.write_sync(reserve, NewJob("other"), "gone", 600.0)
        after = await app.enqueue("note", name="after")
        assert await on_stage.drain() == 0
        app.store.write_sync(stop_worker, "gone")
        assert await on_stage.advance(5) == 1
        assert rows(app.store, "SELECT status FROM direct_reservations") == [("EXPIRED",)]
        assert job(app.store, after.id).status is JobStatus.COMPLETED


@pytest.mark.rule("DIR-02", "LEASE-06")
async def test_a_jump_of_the_wall_clock_expires_no_request_whose_client_waits(store_url: str, tmp_path: Path) -> None:
    gate = asyncio.Event()
    app = noting([], gate)
    clock = ManualClock()
    async with stage(app, tmp_path, clock, store=store_url) as on_stage:
        supervisor = on_stage.supervisor
        await app.enqueue("note", name="current")
        await supervisor.dispatcher.step()
        waiting = await ask(on_stage, "direct")
        clock.jump(3 * 3600)
        assert await supervisor.recovery.recover() == 0
        await supervisor.direct.step()
        supervisor.heartbeat.step()
        assert await supervisor.recovery.recover() == 0
        clock.jump(-6 * 3600)
        assert await supervisor.recovery.recover() == 0
        gate.set()
        await until(lambda: not supervisor.dispatcher.running)
        await on_stage.drain()
        assert (await waiting).reservation.result == "direct"


@pytest.mark.rule("DIR-02", "DEC-004")
async def test_the_waiting_process_and_the_working_one_need_not_be_the_same(store_url: str) -> None:
    app = noting([], asyncio.Event())
    app.settings = app.settings.with_changes(store=store_url)
    other = open_at(store_url)
    asker = Worker("asker", WorkerKind.SERVE, "host", 1)
    async with app.running():
        other.write_sync(register_worker, asker, app.settings.lease_terms)
        direct = DirectExecutionHandler(other, "asker")
        answer = await asyncio.wait_for(direct.request("note", {"name": "far"}), 20)
        assert answer.reservation.result == "far"
        assert answer.reservation.worker_id != "asker"
    with pytest.raises(Unavailable, match="No worker"):
        await direct.request("note", {"name": "nobody"})
    # One that knows the type but not the resource would never take it.
    elsewhere = Worker("elsewhere", WorkerKind.WORKER, "host", 1, types=("note",), resources=("gpu",))
    other.write_sync(register_worker, elsewhere, app.settings.lease_terms)
    with pytest.raises(Unavailable, match="No worker that can run note on the resource default"):
        await direct.request("note", {"name": "nobody"})
    other.close()
    app.close()


@pytest.mark.rule("DIR-06", "CON-003")
async def test_those_who_wait_are_answered_when_the_server_ends(store_url: str, tmp_path: Path) -> None:
    gate = asyncio.Event()
    app = noting([], gate)
    async with stage(app, tmp_path, store=store_url) as on_stage:
        direct = on_stage.supervisor.direct
        await app.enqueue("note", name="current")
        await on_stage.supervisor.dispatcher.step()
        waiting = await ask(on_stage, "waiting")
        await direct.stop()
        assert "reservation.released" in event_names(app.store), "no reservation outlives the shutdown"
        with pytest.raises(Unavailable, match="shutting down"):
            await waiting
        with pytest.raises(Unavailable, match="shutting down"):
            await direct.request("note", {"name": "late"})
        gate.set()
        await until(lambda: not on_stage.supervisor.dispatcher.running)
        await on_stage.drain()


@pytest.mark.rule("LEASE-06", "REC-01")
@pytest.mark.parametrize("hours", [3, -3])
async def test_recovery_after_a_jump_takes_nothing_from_a_worker_that_beats(
    store_url: str, tmp_path: Path, hours: int
) -> None:
    """Whichever clock decides, the machine's or the database's: either can be set by hand."""
    gate = asyncio.Event()
    app = noting([], gate)
    clock = ManualClock()
    async with stage(app, tmp_path, clock, store=store_url) as on_stage:
        handle = await app.enqueue("note", name="current")
        await on_stage.supervisor.dispatcher.step()
        recovery = ZombieRecovery(app.store, app.settings.lease_terms, 5)
        for _ in range(20):
            clock.jump(hours * 3600)
            assert await recovery.recover() == 0
            clock.advance(29)
            on_stage.supervisor.heartbeat.step()
            assert await recovery.recover() == 0
        gate.set()
        await on_stage.step()
        await on_stage.step()
        ended = job(app.store, handle.id)
        assert (ended.status, value(app.store, "SELECT count(*) FROM job_runs")) == (JobStatus.COMPLETED, 1)


@pytest.mark.rule("LEASE-06", "REC-01")
@pytest.mark.parametrize("is_new", [False, True])
async def test_a_worker_that_stands_still_keeps_its_lease_over_a_jump_for_as_long_as_it_has_it(
    store_url: str, tmp_path: Path, is_new: bool
) -> None:
    """By the wall clock its lease is long over; by the clock that cannot jump it has not begun to be late. A process
    that started after the jump knows of it from the event of another."""
    app = noting([], asyncio.Event())
    clock = ManualClock()
    async with stage(app, tmp_path, clock, store=store_url) as on_stage:
        await app.enqueue("note", name="current")
        await on_stage.supervisor.dispatcher.step()
        terms = app.settings.lease_terms
        recovery = ZombieRecovery(app.store, terms, 5)
        assert await recovery.recover() == 0
        clock.jump(3 * 3600)
        if is_new:
            for what in ("database", "skew"):
                app.store.write_sync(record_clock_jump, what, 3 * 3600, host="other", worker_id=None)
            recovery = ZombieRecovery(app.store, terms, 5)
        for _ in range(int(terms.lease_s / 10)):
            assert await recovery.recover() == 0
            clock.advance(10)
        assert await recovery.recover() == 1


@pytest.mark.rule("DIR-03", "CON-002")
async def test_a_request_whose_withdrawal_could_not_be_written_is_withdrawn_as_soon_as_it_can_be(
    store_url: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    order: list[str] = []
    app = noting(order, gate)
    async with stage(app, tmp_path, store=store_url) as on_stage:
        dispatcher, direct = on_stage.supervisor.dispatcher, on_stage.supervisor.direct
        await app.enqueue("note", name="current")
        await dispatcher.step()
        other = await ask(on_stage, "patient")
        gone = await ask(on_stage, "gone")
        outage = Outage(app.store, request, monkeypatch)
        with outage.during():
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            with pytest.raises(Unavailable):
                await direct.step()
            owed = set(direct._to_withdraw)
            assert owed
        monkeypatch.undo()
        await direct.step()
        # The other client may have met the outage too, and its withdrawal may be on its way.
        assert not owed & direct._to_withdraw.keys()
        gate.set()
        await until(lambda: not dispatcher.running)
        await on_stage.drain()
        await asyncio.gather(other, return_exceptions=True)
        assert order[0] == "current" and "gone" not in order
        assert ("RELEASED", "CANCELLED", "the client went away") in rows(
            app.store, "SELECT status, outcome, error FROM direct_reservations"
        )


@pytest.mark.rule("DIR-02")
async def test_a_request_whose_withdrawal_is_owed_is_not_kept_from_expiring(store_url: str, tmp_path: Path) -> None:
    app = noting([], asyncio.Event())
    clock = ManualClock()
    async with stage(app, tmp_path, clock, store=store_url) as on_stage:
        direct = on_stage.supervisor.direct
        waiting = [await ask(on_stage, name) for name in ("gone", "patient")]
        ids = [row[0] for row in rows(app.store, "SELECT id FROM direct_reservations ORDER BY id")]
        clock.advance(5)
        await until(lambda: len(direct._waiting) == 2)
        direct._to_withdraw[ids[0]] = "the client went away"
        store, extended = app.store, []

        async def write(verb: Any, *args: Any) -> Any:
            if verb is not extend:
                raise Unavailable("the store is away")
            extended.append(args[0])

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(store, "write", write)
            with pytest.raises(Unavailable):
                await direct.step()
        assert extended == [{ids[1]}]
        for client in waiting:
            client.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.rule("DIR-02", "CON-003")
async def test_a_request_that_is_served_during_a_shutdown_is_extended_until_it_has_ended(store_url: str) -> None:
    gate = asyncio.Event()
    order: list[str] = []
    app = noting(order, gate)
    app.settings = app.settings.with_changes(
        store=store_url, reservation_s=1, heartbeat_s=0.2, recover_s=0.2, shutdown_grace_s=60
    )
    running = app.running()
    await running.__aenter__()
    client = asyncio.create_task(app.direct("note", name="current"))
    await until(lambda: order)
    stopping = asyncio.create_task(running.__aexit__(None, None, None))
    await until(lambda: "shutdown.begun" in event_names(app.store))

    seen: set[Any] = set()

    def extended_thrice() -> bool:
        seen.add(value(app.store, "SELECT expires_at FROM direct_reservations WHERE status = 'ACTIVE'"))
        return len(seen) > 3

    await until(extended_thrice)
    gate.set()
    assert await client == "current"
    await stopping
    app.close()
