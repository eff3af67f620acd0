"""ClockWatch: jumps and skew above two seconds are told once each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock, OffsetClock, SystemClock
from holdbeat.engine.clock_watch import ClockJump, ClockWatch
from holdbeat.engine.schedule_trigger import ScheduleTrigger
from holdbeat.engine.supervisor import Supervisor
from holdbeat.settings import Settings
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.workers import register_worker
from tests.conformance.acts import OpenStore, events_of, open_at, rows


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_store(store_url: str, clock: ManualClock) -> Iterator[OpenStore]:
    opener = OpenStore(store_url, clock)
    yield opener
    opener.close()


@pytest.mark.rule("TIME-07")
def test_a_jump_of_the_wall_clock_is_told_once_and_recorded(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store()
    jumps: list[ClockJump] = []

    async def scene() -> None:
        watch = ClockWatch(store)
        for seconds, jump in ((5, 0), (3600, 0), (1, 1.9), (1, 2.1), (1, -86400), (1, 0)):
            clock.advance(seconds)
            clock.jump(jump)
            jumps.extend(await watch.check())

    asyncio.run(scene())
    assert jumps == [ClockJump("machine", 2.1), ClockJump("machine", -86400)]
    assert len(events_of(store, "clock.jumped")) == 2


class _Ahead(SystemClock):
    """A machine whose wall clock is set wrong."""

    amount = timedelta()

    def now(self):  # type: ignore[no-untyped-def]
        return super().now() + self.amount


@pytest.mark.rule("TIME-07")
def test_a_machine_that_disagrees_with_the_database_is_told_and_the_database_decides(postgres_url: str) -> None:
    store: PersistenceAdapter = open_at(postgres_url)
    assert isinstance(store.clock, OffsetClock)
    jumps: list[ClockJump] = []
    machine = _Ahead()

    async def scene() -> None:
        watch = ClockWatch(store, machine=machine)
        jumps.extend(await watch.check())
        assert jumps == [] and abs(watch.skew_s) < 2
        machine.amount = timedelta(minutes=10)
        jumps.extend(await watch.check())
        jumps.extend(await watch.check())
        assert round(watch.skew_s) == -600

    asyncio.run(scene())
    assert [(jump.clock, round(jump.amount_s)) for jump in jumps] == [("machine", 600), ("skew", -600)]
    assert abs(store.clock.now() - SystemClock().now()) < timedelta(seconds=2)
    assert len(rows(store, "SELECT 1 FROM events WHERE name = 'clock.jumped'")) == 2
    store.close()


@pytest.mark.rule("TIME-07")
def test_a_database_whose_clock_jumped_while_nobody_wrote_is_noticed(postgres_url: str) -> None:
    store = open_at(postgres_url)
    assert isinstance(store.clock, OffsetClock)
    jumps: list[ClockJump] = []

    async def scene() -> None:
        assert isinstance(store.clock, OffsetClock)
        # As if the last sample came from before the database's clock was set back by an hour.
        now = store.clock.monotonic()
        store.clock.sample(SystemClock().now() + timedelta(hours=1), asked=now, answered=now)
        watch = ClockWatch(store)
        jumps.extend(await watch.check())

    asyncio.run(scene())
    assert [(jump.clock, round(jump.amount_s)) for jump in jumps] == [("database", -3600)]
    store.close()


@pytest.mark.rule("TIME-07")
@pytest.mark.parametrize("kind", ["serve", "worker"])
def test_servers_and_workers_record_a_jump_once_each_with_host_and_worker(
    open_store: OpenStore, clock: ManualClock, kind: str
) -> None:
    store = open_store()
    settings = Settings(store=store.url)
    more = [ScheduleTrigger.for_settings(store, settings)] if kind == "serve" else []
    supervisor = Supervisor(store, settings, [], kind=kind, more_services=more)
    watches = [service for service in supervisor.services if service.watches_clock]

    async def scene() -> None:
        await store.write(register_worker, supervisor.worker, settings.lease_terms)
        for watch in watches:
            await watch.step()
        clock.jump(100)
        for watch in watches:
            await watch.step()

    asyncio.run(scene())
    [row] = rows(store, "SELECT worker_id, data FROM events WHERE name = 'clock.jumped'")
    assert row[0] == supervisor.worker.id
    assert json.loads(row[1])["host"] == supervisor.worker.host
