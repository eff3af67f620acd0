"""The engine under load: one process, 256 slots, no-op handlers, durable settings.

What counts as done is what the store says is finished. Each round measures bare SQL and the engine one after the
other, and ratios are taken within the round: a drain to claim and settle in bare SQL, a life (enqueue in bulk and
drain) to a life in bare SQL.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdbeat.app import App
from holdbeat.bench.bare import BareRates, postgres_life, postgres_single_commits, sqlite_life, sqlite_single_commits
from holdbeat.domain.clock import SystemClock
from holdbeat.domain.store_url import driver_missing
from holdbeat.settings import Settings
from holdbeat.store.queue.pauses import pause, resume

SLOTS = 256
BATCH = 100
CALLERS = 64
LATENCY_PROBES = 200
WARM_UP = 20
COMMITS = 500

Progress = Callable[[str], None]
_clock = SystemClock().monotonic


def bench_app(url: str, began: dict[int, float] | None = None, **changes: Any) -> tuple[App, dict[int, float]]:
    """An App with a no-op handler, and when each of its numbered jobs began."""
    app = App(
        settings=Settings().with_changes(
            **{"store": url, "slots": SLOTS, "http_slots": 0, "concurrency": "unlimited", **changes}
        )
    )
    began = {} if began is None else began

    @app.job(retries=0)
    async def noop() -> None:
        return None

    @app.job(retries=0)
    async def probe(number: int) -> None:
        began[number] = _clock()

    return app, began


async def measure_sqlite(place: Path, jobs: int, rounds: int, workers: int, progress: Progress) -> dict[str, Any]:
    """All figures on SQLite files in `place`."""
    number = 0

    def fresh(name: str) -> str:
        nonlocal number
        number += 1
        return str(place / f"{name}{number}.db")

    figures = await _measure(
        "sqlite",
        lambda: f"sqlite:///{fresh('engine')}",
        lambda: sqlite_life(fresh("bare"), jobs // BATCH * BATCH, BATCH),
        lambda: sqlite_single_commits(fresh("single"), COMMITS),
        jobs,
        rounds,
        progress,
    )
    progress(f"{workers} worker processes on one file …")
    ones, manys = [], []
    for _ in range(rounds):
        ones.append(await _drain_by_processes(f"sqlite:///{fresh('many')}", jobs, 1))
        manys.append(await _drain_by_processes(f"sqlite:///{fresh('many')}", jobs, workers))
    figures["processes"] = {
        "one_per_s": round(statistics.median(ones)),
        "many_per_s": round(statistics.median(manys)),
        "count": workers,
    }
    figures["processes_ratio"] = round(statistics.median(m / o for m, o in zip(manys, ones, strict=True)), 3)
    return figures


async def measure_postgres(url: str, jobs: int, rounds: int, progress: Progress) -> dict[str, Any]:
    """All figures on a PostgreSQL database, each in a schema of its own that is dropped afterwards."""
    try:
        import psycopg
    except ImportError as error:
        raise driver_missing() from error

    schemas: list[str] = []

    def fresh() -> str:
        schema = f"holdbeat_bench_{len(schemas)}"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
            connection.execute(f"CREATE SCHEMA {schema}".encode())
        schemas.append(schema)
        return f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={schema}')}"

    try:
        return await _measure(
            "postgres",
            fresh,
            lambda: postgres_life(fresh(), jobs // BATCH * BATCH, BATCH, 4),
            lambda: postgres_single_commits(fresh(), COMMITS),
            jobs,
            rounds,
            progress,
        )
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            for schema in schemas:
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


async def _measure(
    kind: str,
    fresh: Callable[[], str],
    bare: Callable[[], BareRates],
    single_commits: Callable[[], float],
    jobs: int,
    rounds: int,
    progress: Progress,
) -> dict[str, Any]:
    progress(f"{kind}: an idle worker …")
    latency, idle, rss_mb = await _idle_worker(fresh())
    commit_ms = 1000 / await asyncio.to_thread(single_commits)
    distant_latency = await _from_another_process(fresh())
    progress(f"{kind}: storing jobs …")
    app, _ = bench_app(fresh())
    single = await _enqueue_one_by_one(app, min(jobs, 500))
    concurrent = await _enqueue_concurrently(app, min(jobs, 6400))
    bulk = await _enqueue_in_bulk(app, jobs)
    app.close()
    bares, engines = [], []
    for number in range(rounds):
        bares.append(await asyncio.to_thread(bare))
        engines.append(await _life(fresh(), jobs))
        progress(
            f"{kind}: round {number + 1}: bare SQL claimed and settled {bares[-1].claim_and_settle:,.0f}/s, "
            f"drained {engines[-1].drain:,.0f}/s"
        )
    progress(f"{kind}: beside a handler that computes …")
    busy_drain, busy_latency = await _beside_a_busy_thread(fresh(), max(1000, jobs // 4))
    return {
        "store": kind,
        "jobs": jobs,
        "enqueue_per_s": round(single),
        "enqueue_concurrent_per_s": round(concurrent),
        "bulk_enqueue_per_s": round(bulk),
        **_compared(engines, bares),
        "single_commit_ms": round(commit_ms, 2),
        "latency_ms": latency,
        "latency_from_another_process_ms": distant_latency,
        "busy_drain_per_s": round(busy_drain),
        "busy_latency_ms": busy_latency,
        "rss_mb": rss_mb,
        "idle_cpu_percent": idle,
    }


async def _enqueue_one_by_one(app: App, count: int) -> float:
    start = _clock()
    for _ in range(count):
        await app.enqueue("noop")
    return count / (_clock() - start)


async def _enqueue_concurrently(app: App, count: int) -> float:
    async def caller() -> None:
        for _ in range(count // CALLERS):
            await app.enqueue("noop")

    start = _clock()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return count // CALLERS * CALLERS / (_clock() - start)


async def _enqueue_in_bulk(app: App, count: int) -> float:
    call = app.call("noop")
    start = _clock()
    for first in range(0, count, 1000):
        await app.enqueue_many([call] * min(1000, count - first))
    return count / (_clock() - start)


def unfinished(app: App) -> int:
    return int(
        app.store.read_sync(lambda tx: tx.rows("SELECT count(*) FROM jobs WHERE status IN ('QUEUED', 'RUNNING')"))[0][0]
    )


async def _until_empty(app: App, *, keep: int = 0) -> None:
    while await asyncio.to_thread(unfinished, app) > keep:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


@dataclass(frozen=True, slots=True)
class EngineRates:
    """Jobs per second of the engine."""

    life: float
    drain: float


async def _life(url: str, jobs: int) -> EngineRates:
    """Enqueue in bulk, then drain; what the worker needs to start is not counted."""
    app, _ = bench_app(url)
    enqueue_s = jobs / await _enqueue_in_bulk(app, jobs)
    async with app.running():
        start = _clock()
        await _until_empty(app)
        drain_s = _clock() - start
    app.close()
    return EngineRates(jobs / (enqueue_s + drain_s), jobs / drain_s)


def _compared(engines: Sequence[EngineRates], bares: Sequence[BareRates]) -> dict[str, float]:
    """Medians over the rounds, and the medians of the rounds' ratios."""
    pairs = list(zip(engines, bares, strict=True))
    return {
        "drain_per_s": round(statistics.median(engine.drain for engine in engines)),
        "bare_claim_settle_per_s": round(statistics.median(bare.claim_and_settle for bare in bares)),
        "drain_ratio": round(statistics.median(engine.drain / bare.claim_and_settle for engine, bare in pairs), 3),
        "life_per_s": round(statistics.median(engine.life for engine in engines)),
        "bare_life_per_s": round(statistics.median(bare.life for bare in bares)),
        "life_ratio": round(statistics.median(engine.life / bare.life for engine, bare in pairs), 3),
    }


async def _probe(app: App, began: dict[int, float], count: int, first: int = 0) -> list[float]:
    """Milliseconds from the call of enqueue to the first line of the handler, one at a time."""
    latencies = []
    for number in range(first, first + count):
        submitted = _clock()
        await app.enqueue("probe", number=number)
        while number not in began:  # noqa: ASYNC110
            await asyncio.sleep(0.0005)
        latencies.append((began[number] - submitted) * 1000)
    return latencies


def _percentiles(latencies: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(latencies, n=100)
    return {"p50": round(cuts[49], 2), "p95": round(cuts[94], 2), "p99": round(cuts[98], 2)}


async def _idle_worker(url: str) -> tuple[dict[str, float], float, float]:
    """How soon a job starts on a worker that has nothing to do, and what such a worker costs."""
    app, began = bench_app(url)
    async with app.running():
        await _probe(app, began, WARM_UP, first=10_000)
        latency = _percentiles(await _probe(app, began, LATENCY_PROBES))
        await asyncio.sleep(0.5)
        cpu, start = time.process_time(), _clock()
        await asyncio.sleep(3)
        idle = 100 * (time.process_time() - cpu) / (_clock() - start)
        rss_mb = _rss_mb()
    app.close()
    return latency, round(idle, 2), round(rss_mb, 1)


async def _from_another_process(url: str) -> dict[str, float]:
    """How soon a job that this process submits starts on an idle worker in another one, by the monotonic clock."""
    app, _ = bench_app(url)
    app.store.read_sync(lambda tx: None)
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdbeat.bench.worker", url, str(SLOTS), stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    latencies = []
    try:
        for number in range(WARM_UP + LATENCY_PROBES):
            submitted = _clock()
            await app.enqueue("probe", number=number)
            _, at = (await worker.stdout.readline()).split()
            latencies.append((float(at) - submitted) * 1000)
            await asyncio.sleep(0.005)
    finally:
        worker.terminate()
        await worker.wait()
        app.close()
    return _percentiles(latencies[WARM_UP:])


async def _beside_a_busy_thread(url: str, jobs: int) -> tuple[float, dict[str, float]]:
    """A handler that computes in Python, beside it no-op jobs."""
    app, began = bench_app(url)
    is_over = threading.Event()

    @app.job(retries=0)
    def busy() -> int:
        cycles = 0
        while not is_over.is_set():
            cycles += 1
        return cycles

    await app.enqueue(busy)
    await _enqueue_in_bulk(app, jobs)
    async with app.running(shutdown_grace_s=0.0):
        try:
            start = _clock()
            await _until_empty(app, keep=1)
            drained = jobs / (_clock() - start)
            latency = _percentiles(await _probe(app, began, 50))
        finally:
            is_over.set()
    app.close()
    return drained, latency


async def _drain_by_processes(url: str, jobs: int, count: int) -> float:
    """Jobs per second of `count` worker processes on one store, from the first claim to the last settle."""
    app, _ = bench_app(url)
    app.store.read_sync(lambda tx: None)
    command = [sys.executable, "-m", "holdbeat.bench.worker", url, str(SLOTS)]
    processes = [subprocess.Popen(command) for _ in range(count)]  # noqa: ASYNC220
    try:
        while len(app.store.read_sync(lambda tx: tx.rows("SELECT id FROM workers"))) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        app.store.write_sync(pause)
        await _enqueue_in_bulk(app, jobs)
        app.store.write_sync(resume)
        start = _clock()
        await _until_empty(app)
        return jobs / (_clock() - start)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        app.close()


def _rss_mb() -> float:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
