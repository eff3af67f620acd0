"""A pytest plugin: a real engine on a temporary store, with the clock in the test's hand.

    def test_a_story_is_told(holdbeat_stage_sync):
        with holdbeat_stage_sync(app) as stage:
            job = stage.app.enqueue_sync(story, prompt="a fox")
            stage.drain()
            assert stage.job(job.id).status == "COMPLETED"

`holdbeat_stage` is the same for tests that are coroutines, where a plugin such as anyio or pytest-asyncio runs those.

Nothing is pretended: jobs are rows in a SQLite file, handlers really run, and retries, groups, schedules and webhooks
follow as they do in production. Only time stands still until `advance` lets it pass.

pytest loads this by itself wherever Holdbeat is installed, so it imports nothing of Holdbeat before it is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import asyncio

    from holdbeat.app import App
    from holdbeat.domain.clock import ManualClock
    from holdbeat.domain.job import Job
    from holdbeat.engine.supervisor import Supervisor

ROUNDS_MAX = 100_000


class Stage:
    """One App on a store of its own, moved by hand."""

    def __init__(self, app: App, clock: ManualClock, supervisor: Supervisor) -> None:
        self.app = app
        self.clock = clock
        self.supervisor = supervisor

    async def step(self) -> int:
        """Claims and starts what may run now, waits until it has ended, and settles it. Returns how many ran."""
        dispatcher = self.supervisor.dispatcher
        claims = await dispatcher.step()
        while dispatcher.running:
            await dispatcher.executions.ended()
        await dispatcher.settle_all()
        return len(claims)

    async def drain(self) -> int:
        """Runs everything that may run at this instant, and what follows from it. Returns how many runs that were."""
        total = 0
        for _ in range(ROUNDS_MAX):
            fired = await self._fire()
            ran = await self.step()
            total += ran
            if not ran and not fired:
                return total
        raise RuntimeError("the queue does not become empty: some job enqueues its like without end")

    async def advance(self, seconds: float) -> int:
        """Lets time pass, then drains."""
        self.clock.advance(seconds)
        await self.supervisor.recovery.step()
        return await self.drain()

    async def job(self, job_id: str) -> Job:
        """The job as it stands now, with its run."""
        from holdbeat.store.reads.jobs import load_job

        return await self.app.store.read(load_job, job_id)

    async def _fire(self) -> int:
        fired = 0
        for service in self.supervisor.services:
            if service.name == "schedule-trigger":
                fired += int(await service.step() or 0)
        return fired


class StageSync:
    """A Stage for tests that are plain functions: each step runs an event loop until it is done."""

    def __init__(self, stage: Stage, runner: asyncio.Runner) -> None:
        self.app = stage.app
        self.clock = stage.clock
        self._stage = stage
        self._runner = runner

    def step(self) -> int:
        """As `Stage.step`."""
        return self._runner.run(self._stage.step())

    def drain(self) -> int:
        """As `Stage.drain`."""
        return self._runner.run(self._stage.drain())

    def advance(self, seconds: float) -> int:
        """As `Stage.advance`."""
        return self._runner.run(self._stage.advance(seconds))

    def job(self, job_id: str) -> Job:
        """As `Stage.job`."""
        return self._runner.run(self._stage.job(job_id))


@contextlib.contextmanager
def stage_sync(app: App, folder: Path, clock: ManualClock | None = None, **changes: Any) -> Iterator[StageSync]:
    """`stage` for tests that are plain functions."""
    import asyncio

    with asyncio.Runner() as runner:
        staged = stage(app, folder, clock, **changes)
        entered = runner.run(staged.__aenter__())
        try:
            yield StageSync(entered, runner)
        finally:
            runner.run(staged.__aexit__(None, None, None))


@contextlib.asynccontextmanager
async def stage(app: App, folder: Path, clock: ManualClock | None = None, **changes: Any) -> AsyncIterator[Stage]:
    """Puts an App on a temporary store, or on the one named by `store`. Its own settings are restored afterwards."""
    from holdbeat.domain.clock import ManualClock
    from holdbeat.engine.schedule_trigger import ScheduleTrigger
    from holdbeat.engine.supervisor import Supervisor
    from holdbeat.store.running.workers import register_worker

    clock = clock or ManualClock()
    before = (app.settings, app._clock)
    app.close()
    app.settings = app.settings.with_changes(**{"store": f"sqlite:///{folder / 'stage.db'}", **changes})
    app._clock = clock
    try:
        store = app.store
        supervisor = Supervisor(
            store,
            app.settings,
            app.job_types,
            more_services=[ScheduleTrigger.for_settings(store, app.settings)],
        )
        store.announce_alive(supervisor.worker.id)
        await store.write(register_worker, supervisor.worker, app.settings.lease_terms)
        supervisor.dispatcher.claim_when_stepped()
        app._supervisor = supervisor
        try:
            yield Stage(app, clock, supervisor)
        finally:
            app._supervisor = None
            supervisor.dispatcher.stop_claiming()
            store.withdraw_alive(supervisor.worker.id)
    finally:
        app.close()
        app.settings, app._clock = before


@pytest.fixture
def holdbeat_clock() -> ManualClock:
    """The clock of `holdbeat_stage`: it moves only when told to."""
    from holdbeat.domain.clock import ManualClock

    return ManualClock()


@pytest.fixture
def holdbeat_stage(
    tmp_path: Path, holdbeat_clock: ManualClock
) -> Iterator[Callable[..., contextlib.AbstractAsyncContextManager[Stage]]]:
    """Puts an App on a temporary store: `async with holdbeat_stage(app) as stage: …`."""

    def make(app: App, **changes: Any) -> contextlib.AbstractAsyncContextManager[Stage]:
        return stage(app, tmp_path, holdbeat_clock, **changes)

    yield make


@pytest.fixture
def holdbeat_stage_sync(
    tmp_path: Path, holdbeat_clock: ManualClock
) -> Callable[..., contextlib.AbstractContextManager[StageSync]]:
    """Puts an App on a temporary store: `with holdbeat_stage_sync(app) as stage: …`."""

    def make(app: App, **changes: Any) -> contextlib.AbstractContextManager[StageSync]:
        return stage_sync(app, tmp_path, holdbeat_clock, **changes)

    return make
