"""How late schedules fire, what a herd of them costs, and what the trigger costs while nothing is due.

Prints one line of JSON per store. Lateness is counted until the commit of the job's row has been answered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.lives import terms
from benchmarks.timing import progress, stopwatch
from holdbeat.domain.governor import PlanInputs, plan
from holdbeat.domain.schedule import Schedule
from holdbeat.domain.schedule_edit import created
from holdbeat.domain.schedule_steps import replanned
from holdbeat.engine.schedule_trigger import ScheduleTrigger
from holdbeat.interpreter import tune
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.firing.fire_due import Firing
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.schedules.schedule_rows import insert_schedules
from holdbeat.store.sqlite.store import SqliteStore
from holdbeat.store.transaction import Row, Transaction
from tests.postgres import PostgresServer

INSERTED_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    spread: int
    spread_s: float
    herd: int
    idle_s: float
    plans: int


FULL = Extent(spread=10_000, spread_s=60, herd=100_000, idle_s=10, plans=50_000)
QUICK = Extent(spread=1_500, spread_s=9, herd=10_000, idle_s=3, plans=10_000)


def fill(store: PersistenceAdapter, name: str, starts: list[datetime]) -> None:
    """One schedule per start, hourly from there."""
    store.write_sync(announce, [AnnouncedType("noop")])
    now = store.clock.now()

    def insert(tx: Transaction, first: int, part: list[datetime]) -> None:
        made = []
        for number, start_at in enumerate(part, start=first):
            fields = {"name": f"{name}-{number}", "type": "noop", "interval_s": 3600, "start_at": start_at}
            made.append(replanned(created(tx.new_id(), fields, now), now).schedule)
        insert_schedules(tx, made)

    for first in range(0, len(starts), INSERTED_AT_ONCE):
        store.write_sync(insert, first, starts[first : first + INSERTED_AT_ONCE])


class Observer:
    """Notes when each transaction of the trigger was committed."""

    def __init__(self, store: PersistenceAdapter, expected: int) -> None:
        self._store = store
        self._expected = expected
        self.has_all = asyncio.Event()
        self.committed: dict[datetime, datetime] = {}
        self.fired = 0
        self.refused = 0

    def __call__(self, firing: Firing) -> None:
        self.committed[firing.at] = self._store.clock.now()
        self.fired += firing.fired
        self.refused += firing.refused
        if self.fired >= self._expected:
            self.has_all.set()


async def blocks_ms(until: asyncio.Event) -> list[float]:
    """For how long the event loop did something else, again and again: what the machine itself adds is in it."""
    collected = []
    loop = asyncio.get_running_loop()
    while not until.is_set():
        before = loop.time()
        await asyncio.sleep(0.001)
        collected.append((loop.time() - before - 0.001) * 1000)
    return sorted(collected)


async def run_trigger(store: PersistenceAdapter, expected: int, timeout_s: float) -> tuple[Observer, list[float]]:
    """Runs a trigger until so many jobs were made; returns what it saw and how the loop was blocked."""
    observer = Observer(store, expected)
    trigger = ScheduleTrigger(store, on_fired=observer)
    done = asyncio.Event()
    block = asyncio.create_task(blocks_ms(done))
    await trigger.start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await observer.has_all.wait()
    done.set()
    blocks = await block
    await trigger.stop()
    return observer, blocks


def lateness_ms(store: PersistenceAdapter, observer: Observer, name: str) -> list[float]:
    """Of each job: from its due time to the answered commit."""

    def fires(tx: Transaction) -> list[Row]:
        return tx.rows(
            "SELECT j.scheduled_for, j.created_at FROM jobs j JOIN schedules s ON s.id = j.schedule_id "
            "WHERE s.name LIKE :name",
            name=f"{name}-%",
        )

    def instant(value: Any) -> datetime:
        return value if isinstance(value, datetime) else datetime.fromisoformat(value).astimezone(UTC)

    late = []
    for due, made in store.read_sync(fires):
        late.append((observer.committed[instant(made)] - instant(due)).total_seconds() * 1000)
    return sorted(late)


def share(ordered: list[float], part: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 1) if ordered else 0.0


def once_each(store: PersistenceAdapter) -> bool:
    def twice(tx: Transaction) -> list[Row]:
        return tx.rows(
            "SELECT schedule_id FROM jobs WHERE schedule_id IS NOT NULL "
            "GROUP BY schedule_id, scheduled_for HAVING count(*) > 1 LIMIT 1"
        )

    return not store.read_sync(twice)


def spread_out(store: PersistenceAdapter, extent: Extent) -> dict[str, Any]:
    """Schedules whose due times are spread evenly."""
    lead_s = 3 + extent.spread / 5000
    begin = store.clock.now() + timedelta(seconds=lead_s)
    step_s = extent.spread_s / extent.spread
    fill(store, "spread", [begin + timedelta(seconds=number * step_s) for number in range(extent.spread)])
    observer, blocks = asyncio.run(run_trigger(store, extent.spread, lead_s + extent.spread_s + 30))
    late = lateness_ms(store, observer, "spread")
    return {
        "spread_schedules": extent.spread,
        "spread_over_s": extent.spread_s,
        "spread_fired": observer.fired,
        "late_p50_ms": share(late, 0.5),
        "late_p99_ms": share(late, 0.99),
        "late_max_ms": share(late, 1.0),
        "early": sum(item < 0 for item in late),
        "spread_block_p99_ms": share(blocks, 0.99),
        "spread_block_max_ms": share(blocks, 1.0),
        "spread_once_each": once_each(store),
    }


def herd(store: PersistenceAdapter, extent: Extent) -> dict[str, Any]:
    """Schedules that are all due at the same instant."""
    lead_s = 3 + extent.herd / 2500
    begin = store.clock.now() + timedelta(seconds=lead_s)
    with stopwatch() as filling:
        fill(store, "herd", [begin] * extent.herd)
    if filling.elapsed_s > lead_s:
        progress(f"  filling took {filling.elapsed_s:.1f} s, longer than the lead")
    observer, blocks = asyncio.run(run_trigger(store, extent.herd, lead_s + 300))
    late = lateness_ms(store, observer, "herd")
    last = max(observer.committed.values())
    return {
        "herd_schedules": extent.herd,
        "herd_fired": observer.fired,
        "herd_refused": observer.refused,
        "herd_once_each": once_each(store) and observer.fired == extent.herd,
        "herd_total_s": round((last - begin).total_seconds(), 2),
        "herd_per_s": round(extent.herd / max(0.001, (last - begin).total_seconds())),
        "herd_late_p50_ms": share(late, 0.5),
        "herd_late_p99_ms": share(late, 0.99),
        "herd_block_p99_ms": share(blocks, 0.99),
        "herd_block_max_ms": share(blocks, 1.0),
    }


def machine(extent: Extent) -> dict[str, float]:
    """What a timer and a sync to disk cost here and now without Holdbeat: no lateness can be below their sum."""

    async def timers() -> list[float]:
        done = asyncio.Event()
        blocks = asyncio.create_task(blocks_ms(done))
        await asyncio.sleep(extent.idle_s / 2)
        done.set()
        return await blocks

    syncs = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(200):
            file.write(b"x" * 4096)
            file.flush()
            with stopwatch() as watch:
                os.fdatasync(file.fileno())
            syncs.append(watch.elapsed_s * 1000)
            time.sleep(0.005)
    return {
        "machine_timer_p99_ms": share(asyncio.run(timers()), 0.99),
        "machine_sync_p50_ms": share(sorted(syncs), 0.5),
        "machine_sync_p99_ms": share(sorted(syncs), 0.99),
    }


def idle(store: PersistenceAdapter, extent: Extent) -> float:
    """Percent of one core while nothing is due."""

    async def rest() -> float:
        trigger = ScheduleTrigger(store)
        await trigger.start()
        await asyncio.sleep(1)
        before = time.process_time()
        await asyncio.sleep(extent.idle_s)
        used = time.process_time() - before
        await trigger.stop()
        return used

    return round(asyncio.run(rest()) / extent.idle_s * 100, 3)


def plans_per_s(extent: Extent) -> int:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    probes = [
        Schedule("a", "a", now, type="t", interval_s=60, adaptive=True, failure_count=2, min_interval_s=30),
        Schedule("b", "b", now, type="t", cron="*/5 9-17 * * 1-5", timezone="Europe/Berlin", adaptive=True),
    ]
    with stopwatch() as watch:
        for number in range(extent.plans):
            plan(PlanInputs.of(probes[number % 2]), now + timedelta(seconds=number * 7))
    return round(extent.plans / watch.elapsed_s)


def measure(
    name: str, new_store: Callable[[], contextlib.AbstractContextManager[PersistenceAdapter]], extent: Extent
) -> dict[str, Any]:
    figures: dict[str, Any] = {"store": name, "plans_per_s": plans_per_s(extent), **machine(extent)}
    with new_store() as store:
        progress(f"{name}: idle without schedules")
        figures["idle_core_percent_0"] = idle(store, extent)
        progress(f"{name}: {extent.spread} schedules over {extent.spread_s:g} s")
        figures |= spread_out(store, extent)
    with new_store() as store:
        progress(f"{name}: {extent.herd} schedules at one instant")
        figures |= herd(store, extent)
        progress(f"{name}: idle with {extent.herd} schedules")
        figures[f"idle_core_percent_{extent.herd}"] = idle(store, extent)
    return figures


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer schedules, for a first impression")
    parser.add_argument("--store", choices=("sqlite", "postgres"), help="only this store")
    parser.add_argument("--folder", help="where the SQLite files go; must be on a disk")
    options = parser.parse_args(argv)
    extent = QUICK if options.quick else FULL
    tune()
    with contextlib.ExitStack() as stack:
        if options.store != "postgres":
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="holdbeat-bench-", dir=options.folder))
            )
            numbers = iter(range(100))

            @contextlib.contextmanager
            def sqlite() -> Iterator[PersistenceAdapter]:
                with contextlib.closing(SqliteStore(str(folder / f"time-{next(numbers)}.db"), terms())) as store:
                    yield store

            print(json.dumps(measure("sqlite", sqlite, extent)), flush=True)
        if options.store != "sqlite":
            server = stack.enter_context(PostgresServer(durable=True))

            @contextlib.contextmanager
            def postgres() -> Iterator[PersistenceAdapter]:
                with contextlib.closing(PostgresStore(server.create_database(), terms())) as store:
                    yield store

            print(json.dumps(measure("postgres", postgres, extent)), flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
