"""What durable work costs: steps of one handler and of many at once, fan-out and fan-in: `make bench-steps`."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from benchmarks.timing import Rounds, progress, stopwatch
from holdbeat.domain.clock import SystemClock
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Claim, Settlement
from holdbeat.domain.run import Outcome
from holdbeat.domain.submission import Submission
from holdbeat.engine.run_keeper import RunKeeper
from holdbeat.handlers.steps import StepOptions, Steps
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

    shared_cpu_s: list[float] = []

    def steps(handlers: int) -> float:
        each = commits * (16 if handlers > 1 else 1) // handlers
        with bench.store() as store:
            processor = time.process_time()
            result = asyncio.run(_steps(store, handlers, each))
            if handlers > 1:
                shared_cpu_s.append((time.process_time() - processor) / (each * handlers))
            return result

    progress(f"{bench.name}: steps of one handler, and of {HANDLERS} at once")
    found = Rounds(
        {
            "single commits": lambda: bench.single_commits(commits),
            "steps": lambda: steps(1),
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


async def _steps(store: PersistenceAdapter, handlers: int, steps: int) -> float:
    """Steps per second, each called and kept as a handler's are."""
    await store.write(enqueue, [NewJob("noop") for _ in range(handlers)])
    claims = await store.write(claim, Vacancy(WORKER, list(range(handlers)), (), ["noop"]))
    with stopwatch() as watch:
        await asyncio.gather(*(_handler(store, taken, steps) for taken in claims))
    return handlers * steps / watch.elapsed_s


async def _handler(store: PersistenceAdapter, taken: Claim, steps: int) -> None:
    assert taken.job is not None
    keeper = RunKeeper(store, taken.lease, taken.job, StopSignal())
    kept = Steps(keeper, SystemClock(), lambda name, started_at: None, is_first=True)

    async def nothing() -> dict[str, int]:
        return {"page": 1}

    for number in range(steps):
        await kept.run_async(f"page {number}", nothing, StepOptions(), is_async=True)


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
