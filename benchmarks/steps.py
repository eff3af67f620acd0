"""What durable work costs: steps of one handler and of many at once, fan-out and fan-in: `make bench-steps`."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from benchmarks.timing import Rounds, progress, stopwatch
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Claim, Settlement
from holdbeat.domain.run import Outcome, RunStatus
from holdbeat.domain.submission import Submission
from holdbeat.engine.executor import Executor
from holdbeat.engine.report_flush import ReportFlush
from holdbeat.engine.run_reports import RunReports
from holdbeat.engine.serial_tasks import SerialTasks
from holdbeat.handlers.context import Context, SyncContext
from holdbeat.handlers.handler import make_handler
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.stop import StopSignal
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.submit import submit
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.running.settle import settle

HANDLERS = 64
PAGES = 10_000
WORKER = "worker-steps"
STEP_MOST = 1.3
"""A step that is alone costs at most so many raw single commits."""
SHARED_LEAST = 8.0
"""So many handlers at once keep at least so many times as many steps per second as there are single commits."""
PAGES_MOST_S = {"sqlite": 3.0, "postgres": 5.0}


def measure(bench: Any, commits: int, rounds: int) -> dict[str, Any]:
    """All figures of one store."""

    lone_cpu_s: list[float] = []
    shared_cpu_s: list[float] = []

    def steps(handlers: int, *, in_thread: bool = False) -> float:
        each = commits * (16 if handlers > 1 else 1) // handlers
        with bench.store() as store:
            per_s, cpu_s = asyncio.run(_steps(store, handlers, each, in_thread=in_thread))
        if in_thread:
            return per_s
        (shared_cpu_s if handlers > 1 else lone_cpu_s).append(cpu_s)
        return per_s

    progress(f"{bench.name}: steps of one handler, and of {HANDLERS} at once")
    found = Rounds(
        {
            "single commits": lambda: bench.single_commits(commits),
            "steps": lambda: steps(1),
            "steps in a thread": lambda: steps(1, in_thread=True),
            "shared steps": lambda: steps(HANDLERS),
        },
        rounds,
    )
    progress(f"{bench.name}: fan-out and fan-in of {PAGES:,}")
    with bench.store() as store:
        fans = _fans(store)
    return {
        "step_per_s": found.median("steps"),
        "step_commits": found.ratio("single commits", "steps"),
        "thread_step_commits": found.ratio("single commits", "steps in a thread"),
        "step_cpu_us": round(statistics.median(lone_cpu_s) * 1_000_000),
        "shared_step_per_s": found.median("shared steps"),
        "shared_step_ratio": found.ratio("shared steps", "single commits"),
        "shared_step_cpu_us": round(statistics.median(shared_cpu_s) * 1_000_000),
        **fans,
    }


def misses(store: str, figures: dict[str, Any]) -> list[str]:
    """What is slower than it should be."""
    slow = []
    if figures["step_commits"] > STEP_MOST:
        slow.append(f"a step costs {figures['step_commits']} commits, not {STEP_MOST}")
    if figures["shared_step_ratio"] < SHARED_LEAST:
        slow.append(f"{HANDLERS} handlers keep {figures['shared_step_ratio']} steps per commit, not {SHARED_LEAST}")
    for name in ("fan_out_s", "fan_in_s"):
        if figures[name] > PAGES_MOST_S[store]:
            slow.append(f"{name} is {figures[name]} s, not {PAGES_MOST_S[store]} s")
    return slow


async def _steps(store: PersistenceAdapter, handlers: int, steps: int, *, in_thread: bool) -> tuple[float, float]:
    """Steps per second, and seconds of the processor here for each: of handlers that call `ctx.step` and run as a
    worker runs them."""

    async def nothing() -> dict[str, int]:
        return {"page": 1}

    async def handler(ctx: Context) -> None:
        for number in range(steps):
            await ctx.step(f"page {number}", nothing)

    def plain_handler(ctx: SyncContext) -> None:
        for number in range(steps):
            ctx.step(f"page {number}", dict, page=1)

    types = {"noop": make_handler(JobType.from_function(plain_handler if in_thread else handler, "noop"))}
    reports = RunReports(store, None)
    executor = Executor(types, reports, store.clock)
    await store.write(enqueue, [NewJob("noop") for _ in range(handlers)])
    claims = await store.write(claim, Vacancy(WORKER, list(range(handlers)), (), ["noop"]))
    outcomes: list[Outcome] = []

    async def run(taken: Claim) -> None:
        outcomes.append(await executor.execute(taken, StopSignal()))

    tasks: SerialTasks[Claim] = SerialTasks(run)
    flush = ReportFlush(reports)
    await flush.start()
    processor = time.process_time()
    with stopwatch() as watch:
        tasks.start(claims)
        await tasks.ended()
    cpu_s = time.process_time() - processor
    await flush.stop()
    assert [outcome.status for outcome in outcomes] == [RunStatus.COMPLETED] * handlers
    return handlers * steps / watch.elapsed_s, cpu_s / (handlers * steps)


def _fans(store: PersistenceAdapter) -> dict[str, Any]:
    """Seconds, and seconds of the processor here, to store and open jobs that wait for one, and one that waits for
    many."""
    store.write_sync(announce, [AnnouncedType("noop")])
    root = Submission.read({"type": "noop", "ref": "root"})
    pages = [Submission.read({"type": "noop", "after": [{"ref": "root"}]}) for _ in range(PAGES)]
    wall, processor = time.perf_counter(), time.process_time()
    jobs = store.write_sync(submit, [root, *pages]).jobs
    _end(store, 1)
    figures = {
        "fan_out_s": round(time.perf_counter() - wall, 2),
        "fan_out_cpu_s": round(time.process_time() - processor, 2),
    }
    after = [{"job_id": job.id} for job in jobs[1:]]
    report = Submission.read({"type": "noop", "after": after, "on_upstream": "run"})
    claims = store.write_sync(claim, Vacancy(WORKER, list(range(PAGES)), (), ["noop"]))
    assert len(claims) == PAGES
    wall, processor = time.perf_counter(), time.process_time()
    store.write_sync(submit, [report])
    _settle(store, claims)
    figures |= {
        "fan_in_s": round(time.perf_counter() - wall, 2),
        "fan_in_cpu_s": round(time.process_time() - processor, 2),
    }
    _end(store, 1)
    return figures


def _end(store: PersistenceAdapter, jobs: int) -> None:
    claims = store.write_sync(claim, Vacancy(WORKER, list(range(jobs)), (), ["noop"]))
    assert len(claims) == jobs
    _settle(store, claims)


def _settle(store: PersistenceAdapter, claims: list[Claim]) -> None:
    outcome = Outcome.completed({"ok": True})
    store.write_sync(settle, [Settlement(taken.lease.id, WORKER, taken.lease.fence, outcome) for taken in claims])
