"""Every Service can be started and stopped at any moment, as often as one likes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from holdbeat import App
from holdbeat.domain.errors import StoreDown, StoreRefused
from holdbeat.engine.schedule_trigger import ScheduleTrigger
from holdbeat.engine.service import Service
from holdbeat.engine.supervisor import Supervisor
from holdbeat.engine.webhook_service import WebhookService
from holdbeat.store.adapter import PersistenceAdapter
from tests.engine.acting import until, value

pytestmark = pytest.mark.asyncio


def all_services(app: App) -> list[Service]:
    store = app.store
    more = [ScheduleTrigger.for_settings(store, app.settings), WebhookService.for_settings(store, app.settings)]
    supervisor = Supervisor(store, app.settings, app.job_types, more_services=more)
    return [*supervisor.services, supervisor.direct]


@pytest.mark.rule("OPS-06", "CON-003")
async def test_every_service_starts_and_stops_fifty_times_in_any_order(store_url: str) -> None:
    app = App(store_url)
    for service in all_services(app):
        await service.stop()
        for number in range(50):
            await service.start()
            await service.start()
            if number % 3 == 0:
                await asyncio.sleep(0)
            if number % 7 == 0:
                service.wake()
            await service.stop()
            await service.stop()
        assert service._task is None
        await service.start()
        await asyncio.sleep(0)
        assert service._task is not None and not service._task.done()
        await service.stop()
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []
    app.close()


class Steps(Service):
    """A service whose steps do what the test says."""

    name: ClassVar[str] = "steps"

    def __init__(self, store: PersistenceAdapter, act: Callable[[int], Any]) -> None:
        super().__init__(store, 0.001)
        self.count = 0
        self.is_inside = False
        self._act = act

    async def step(self) -> None:
        self.count += 1
        self.is_inside = True
        answer = self._act(self.count)
        if asyncio.iscoroutine(answer):
            await answer
        self.is_inside = False


async def test_stopping_during_a_step_waits_for_its_end(store_url: str) -> None:
    app = App(store_url)
    gate = asyncio.Event()
    service = Steps(app.store, lambda count: gate.wait())
    await service.start()
    await until(lambda: service.is_inside)
    stopping = asyncio.create_task(service.stop())
    assert (await asyncio.wait({stopping}, timeout=0.05))[0] == set()
    gate.set()
    await stopping
    assert (service.count, service.is_inside) == (1, False)
    app.close()


@pytest.mark.rule("OPS-03")
async def test_a_step_that_fails_is_followed_by_another_and_a_refused_store_by_none(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdbeat.engine.service.FAILED_PAUSE_S", 0.001)
    app = App(store_url)
    refusals: list[StoreRefused] = []

    def act(count: int) -> None:
        if count < 3:
            raise [ValueError("a bug"), StoreDown("away")][count % 2]
        if count == 5:
            raise StoreRefused("gone for good")

    service = Steps(app.store, act)
    service.on_refused = refusals.append
    await service.start()
    await until(lambda: refusals)
    await until(lambda: service._task is None or service._task.done())
    assert service.count == 5
    await service.stop()
    app.close()


@pytest.mark.rule("CON-003")
async def test_a_whole_app_starts_and_stops_many_times_and_leaves_nothing_behind(store_url: str) -> None:
    app = App(store_url)

    @app.job
    async def work() -> int:
        return 1

    for _ in range(5):
        async with app.running():
            assert (await (await app.enqueue("work")).wait(20)).run.result == 1  # type: ignore[union-attr]
    assert value(app.store, "SELECT count(*) FROM workers WHERE stopped_at IS NULL") == 0
    assert value(app.store, "SELECT count(*) FROM leases") == 0
    app.close()
