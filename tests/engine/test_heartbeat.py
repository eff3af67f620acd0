"""The Heartbeat keeps leases alive whatever handlers do, and lets go of what it cannot keep."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from holdbeat import App, Context
from holdbeat.domain.clock import ManualClock, SystemClock
from holdbeat.domain.job import JobStatus
from holdbeat.domain.lease import LeaseTerms
from holdbeat.engine.zombie_recovery import ZombieRecovery
from holdbeat.handlers.stop import StopReason
from holdbeat.testing import Stage, stage
from tests.conformance.acts import open_at
from tests.engine.acting import Outage, event_names, until, value

pytestmark = pytest.mark.asyncio

LEASE_S = 1.5


@contextlib.contextmanager
def another_recoverer(url: str, terms: LeaseTerms) -> Iterator[threading.Event]:
    """Recovery in a thread of its own, as another process would do it.

    The event is set when recovery has looked after the first two leases, had nobody renewed them, would have been lost.
    """
    stopped, has_looked = threading.Event(), threading.Event()

    async def recover() -> None:
        store = open_at(url)
        recovery = ZombieRecovery(store, terms, 0.1)
        lost_at: float | None = None
        while not stopped.is_set():
            is_late = lost_at is not None and time.monotonic() > lost_at
            await recovery.step()
            if is_late:
                has_looked.set()
            if lost_at is None and value(store, "SELECT count(*) FROM leases") == 2:
                lost_at = time.monotonic() + terms.lease_s + terms.grace_s
            await asyncio.sleep(0.1)
        store.close()

    thread = threading.Thread(target=lambda: asyncio.run(recover()))
    thread.start()
    yield has_looked
    stopped.set()
    thread.join()


@pytest.mark.rule("LEASE-02", "LEASE-01")
async def test_handlers_that_block_the_loop_or_compute_without_end_keep_their_leases(store_url: str) -> None:
    app = App(store_url, slots=2, concurrency="unlimited", lease_s=LEASE_S, heartbeat_s=0.3, grace_s=0.5)
    with another_recoverer(store_url, app.settings.lease_terms) as has_looked:

        @app.job(retries=2)
        async def block() -> None:
            assert has_looked.wait(50)

        @app.job(retries=2)
        def compute() -> int:
            number = 0
            while not has_looked.is_set():
                number += 1
            return number

        handles = await app.enqueue_many([app.call("compute"), app.call("block")])
        async with app.running():
            ended = [await handle.wait(60) for handle in handles]
    assert [one.status for one in ended] == [JobStatus.COMPLETED, JobStatus.COMPLETED]
    assert "zombie.found" not in event_names(app.store)
    app.close()


class Working:
    """A stage on which one job runs until it is told to end."""

    def __init__(self, on_stage: Stage, reasons: list[StopReason | None], lease_id: str) -> None:
        self.stage = on_stage
        self.reasons = reasons
        self.lease_id = lease_id

    @property
    def heartbeat(self) -> Any:
        return self.stage.supervisor.heartbeat


@contextlib.asynccontextmanager
async def working(url: str, folder: Path, clock: Any) -> Any:
    app = App()
    reasons: list[StopReason | None] = []

    @app.job(retries=0)
    async def work(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(ctx._stop.reason)

    async with stage(app, folder, clock, store=url) as on_stage:
        await app.enqueue("work")
        (claim,) = await on_stage.supervisor.dispatcher.step()
        await asyncio.sleep(0)
        try:
            yield Working(on_stage, reasons, claim.lease.id)
        finally:
            on_stage.supervisor.dispatcher.running.interrupt_all()
            await until(lambda: not on_stage.supervisor.dispatcher.running)


class PassingClock:
    """The real clock, with time that the test lets pass on top."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.more_s = 0.0

    def now(self) -> Any:
        return self._real.now()

    def monotonic(self) -> float:
        return float(self._real.monotonic()) + self.more_s


@pytest.mark.rule("LEASE-07", "LEASE-04")
async def test_a_failed_beat_is_tried_again_and_disturbs_nobody_before_the_deadline(
    store_url: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: Any, caplog: Any
) -> None:
    clock = PassingClock(SystemClock())
    async with working(store_url, tmp_path, clock) as work:
        assert work.heartbeat.step()
        outage = Outage(work.stage.app.store, request, monkeypatch)
        with outage.during(), caplog.at_level(logging.WARNING):
            assert not await asyncio.to_thread(work.heartbeat.step)
            assert "it will be tried again" in caplog.text
            clock.more_s += 200
            assert not await asyncio.to_thread(work.heartbeat.step)
            assert not work.reasons
        assert work.heartbeat.step()
        with outage.during():
            clock.more_s += 299
            assert not await asyncio.to_thread(work.heartbeat.step)
            assert not work.reasons
            clock.more_s += 1.5
            assert not await asyncio.to_thread(work.heartbeat.step)
            await until(lambda: work.reasons == [StopReason.LOST])
        await work.stage.step()


@pytest.mark.rule("LEASE-04")
async def test_a_beat_that_hangs_does_not_hide_the_deadline(store_url: str, tmp_path: Path) -> None:
    """Somebody else holds the database for longer than the lease: the handler is stopped meanwhile, not afterwards."""
    clock = ManualClock()
    async with working(store_url, tmp_path, clock) as work:
        connection: Any
        if store_url.startswith("sqlite"):
            connection = apsw.Connection(store_url.removeprefix("sqlite:///"))
            connection.set_busy_timeout(5000)
            connection.execute("BEGIN EXCLUSIVE")
        else:
            connection = psycopg.connect(store_url)
            connection.execute("LOCK TABLE leases IN ACCESS EXCLUSIVE MODE")
        beating = asyncio.create_task(asyncio.to_thread(work.heartbeat.step))
        clock.advance(300)
        await until(lambda: work.reasons == [StopReason.LOST], 8)
        assert not beating.done()
        connection.execute("ROLLBACK")
        connection.close()
        await beating
        await work.stage.step()


@pytest.mark.rule("LEASE-04", "LEASE-03")
async def test_a_worker_that_learns_that_its_lease_is_gone_stops_the_handler(store_url: str, tmp_path: Path) -> None:
    async with working(store_url, tmp_path, ManualClock()) as work:
        store = work.stage.app.store
        store.write_sync(lambda tx: tx.execute("DELETE FROM leases"))
        assert work.heartbeat.step()
        await until(lambda: work.reasons == [StopReason.LOST])
        await work.stage.supervisor.dispatcher.settle_all()
        assert "lease.stale_result" in event_names(store)


@pytest.mark.rule("LEASE-06", "LEASE-02")
@pytest.mark.parametrize("hours", [3, -3])
async def test_a_jump_of_the_wall_clock_is_answered_with_a_beat(store_url: str, tmp_path: Path, hours: int) -> None:
    clock = ManualClock()
    async with working(store_url, tmp_path, clock) as work:
        heartbeat, store = work.heartbeat, work.stage.app.store
        is_resting = threading.Event()
        apart = heartbeat._apart

        def noted_apart() -> Any:
            result = apart()
            is_resting.set()
            return result

        heartbeat._apart = noted_apart
        heartbeat.start()
        try:
            expires = "SELECT expires_at FROM leases"
            before = value(store, expires)
            assert await asyncio.to_thread(is_resting.wait, 20)
            clock.jump(hours * 3600)
            await until(lambda: value(store, expires) != before)
        finally:
            heartbeat.stop()
        assert not work.reasons
        # And recovery, which may look before the beat, leaves the live one alone.
        assert await work.stage.supervisor.recovery.step() == 0


@pytest.mark.rule("LEASE-02", "LEASE-04", "LEASE-07")
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_a_lock_on_jobs_longer_than_the_lease_stops_no_handler(store_url: str) -> None:
    """SQLite locks no single table. What ends meanwhile waits for the lock with its own lease locked."""
    app = App(store_url, slots=4, concurrency="unlimited", lease_s=LEASE_S, heartbeat_s=0.3, grace_s=30)
    release, short = threading.Event(), threading.Event()

    @app.job(retries=0)
    async def hold() -> str:
        await asyncio.to_thread(release.wait, 30)
        return "done"

    @app.job(retries=0)
    async def end_soon() -> str:
        await asyncio.to_thread(short.wait, 30)
        return "done"

    async with app.running(shutdown_grace_s=0):
        long, ending = await app.enqueue(hold), await app.enqueue(end_soon)
        await until(lambda: value(app.store, "SELECT count(*) FROM leases") == 2)
        with psycopg.connect(store_url) as connection:
            connection.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            locked_at = time.monotonic()

            def latest_expiry() -> datetime:
                (expiry,) = connection.execute("SELECT max(expires_at) FROM leases").fetchone() or (None,)
                assert isinstance(expiry, datetime)
                return expiry

            first = latest_expiry()
            short.set()
            late = asyncio.create_task(app.enqueue(hold))
            # The leases that were there at first are over, and one of them has been renewed since.
            await until(lambda: time.monotonic() > locked_at + LEASE_S)
            await until(lambda: latest_expiry() - first > timedelta(seconds=LEASE_S))
            assert app._supervisor is not None
            assert [entry.stop.reason for entry in app._supervisor.dispatcher.running.values()] == [None]
        release.set()
        for handle in (long, ending, await late):
            assert (await handle.wait(timeout=20)).status is JobStatus.COMPLETED
    app.close()


WAITS_LONG = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
    "AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > %s"
)


@pytest.mark.rule("LEASE-02")
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("table", ["progress", "run_logs", "artifacts", "steps"])
async def test_a_report_that_waits_for_its_table_costs_no_lease(store_url: str, table: str) -> None:
    app = App(store_url, slots=1, lease_s=LEASE_S, heartbeat_s=0.3, grace_s=30)
    is_locked, is_free = threading.Event(), threading.Event()

    @app.job(retries=0)
    async def work(ctx: Context) -> str:
        await asyncio.to_thread(is_locked.wait, 30)
        match table:
            case "progress":
                ctx.progress(0.5)
            case "run_logs":
                ctx.log("a line")
            case "artifacts":
                await ctx.artifact("name", "content")
            case "steps":
                await ctx.step("one", lambda: 1)
        await asyncio.to_thread(is_free.wait, 30)
        return "done"

    async with app.running(shutdown_grace_s=0):
        handle = await app.enqueue(work)
        await until(lambda: value(app.store, "SELECT count(*) FROM leases") == 1)
        with psycopg.connect(store_url) as connection, psycopg.connect(store_url, autocommit=True) as observer:
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            is_locked.set()
            await until(lambda: observer.execute(WAITS_LONG, [timedelta(seconds=2 * LEASE_S)]).fetchone())
        is_free.set()
        assert (await handle.wait(timeout=20)).status is JobStatus.COMPLETED
    app.close()


@pytest.mark.rule("LEASE-04")
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_a_claim_that_waited_for_a_lock_longer_than_its_lease_is_executed(store_url: str) -> None:
    app = App(store_url, slots=1, lease_s=LEASE_S, heartbeat_s=0.3, grace_s=30)

    @app.job(retries=0)
    async def work() -> str:
        return "done"

    async with app.running(shutdown_grace_s=0):
        with psycopg.connect(store_url) as connection, psycopg.connect(store_url, autocommit=True) as observer:
            connection.execute("LOCK TABLE job_runs IN ACCESS EXCLUSIVE MODE")
            handle = await app.enqueue(work)
            await until(lambda: observer.execute(WAITS_LONG, [timedelta(seconds=LEASE_S)]).fetchone())
        assert (await handle.wait(timeout=20)).status is JobStatus.COMPLETED
    app.close()
