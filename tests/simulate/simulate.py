"""Simulated hours of several processes under faults, one seed after the other, judged by the checker.

    python -m tests.simulate.simulate --seeds 100 --hours 24 [--first 1] [--jobs 2]
    python -m tests.simulate.simulate --planted

A seed that breaks a promise is run again with fewer and fewer acts and faults; what is left is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.simulate.plan import Plan, draw
from tests.simulate.planted import BUGS
from tests.simulate.shrink import shrink
from tests.simulate.world import World

PLANTED_SEEDS = 200


@dataclass(frozen=True)
class Result:
    seed: int
    violations: tuple[str, ...]
    digest: str
    jobs: int
    faults: int
    commits: int
    hours: float
    seconds: float
    """Of processor time."""


@contextlib.contextmanager
def quiet_ends() -> Iterator[None]:
    """Tasks of killed processes are thrown away in the middle of what they do; nobody need hear of it.

    What they would begin at their end finds no event loop: one that Python makes for it would keep the whole world.
    """
    asyncio.set_event_loop(None)
    before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a coroutine of theirs that never began
            yield
            gc.collect()
    finally:
        sys.unraisablehook = before


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Without the collector of cycles, which took a quarter of the time; what is left is collected after the seed."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def run_plan(plan: Plan) -> Result:
    began = time.process_time()
    with quiet_ends(), no_collection():
        world = World(plan)
        violations = tuple(map(str, world.run()))
        result = Result(
            plan.seed, violations, world.digest(), len(world.history.jobs), sum(item.is_fault for item in plan.items),
            world.database.commits, world.loop.time() / 3600, time.process_time() - began,
        )  # fmt: skip
        del world
    return result


@contextlib.contextmanager
def silent_logs() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def run_seed(seed: int, hours: float) -> Result:
    with silent_logs():
        return run_plan(draw(seed, hours))


def shortest(seed: int, hours: float) -> str:
    """The shortest history of a failing seed that could be found, in words."""
    plan = shrink(draw(seed, hours), lambda smaller: bool(run_plan(smaller).violations))
    result = run_plan(plan)
    notice = "its death" if plan.kernel_tells else "its lease"
    lines = [f"seed {seed}, {plan.processes} processes, a dead one is noticed by {notice}:"]
    lines += [f"  {item}" for item in plan.items] or ["  (no act and no fault)"]
    lines += [f"  breaks  {violation}" for violation in result.violations[:5]]
    return "\n".join(lines)


@dataclass(frozen=True)
class Found:
    name: str
    seed: int | None
    """The first seed that showed it; None if none did."""
    seconds: float
    violation: str


def find_planted(name: str, hours: float, seeds: int = PLANTED_SEEDS) -> Found:
    """How many seeds it takes to find a bug."""
    began = time.process_time()
    with silent_logs(), BUGS[name]():
        for seed in range(1, seeds + 1):
            result = run_seed(seed, hours)
            if result.violations:
                return Found(name, seed, time.process_time() - began, result.violations[0])
    return Found(name, None, time.process_time() - began, "NOT FOUND")


def _campaign(first: int, seeds: int, hours: float, jobs: int) -> int:
    began = time.monotonic()
    results: list[Result] = []
    failing: list[int] = []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        try:
            for result in pool.map(run_seed, range(first, first + seeds), [hours] * seeds):
                results.append(result)
                if result.violations:
                    failing.append(result.seed)
                    print(f"seed {result.seed}: {result.violations[0]}", flush=True)
                elif sys.stderr.isatty():
                    print(f"\rseed {result.seed}", end="", file=sys.stderr)
                elif result.seed % 50 == 0:
                    print(f"seed {result.seed}", file=sys.stderr, flush=True)
            for text in pool.map(shortest, failing[:5], [hours] * len(failing[:5])):
                print(text, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            if not results:
                print("interrupted before the first seed had ended")
                return 130
    cost = sum(result.seconds for result in results) / len(results)
    print(
        f"{len(results)} seeds × {hours:g} h: {sum(r.jobs for r in results)} jobs, "
        f"{sum(r.faults for r in results)} faults, {sum(r.commits for r in results)} commits in "
        f"{time.monotonic() - began:.0f} s on {jobs} processes; one seed costs {cost:.1f} s of a core. "
        f"Seeds that broke a promise: {len(failing)}"
    )
    return 1 if failing else 0


def _planted(hours: float, jobs: int) -> int:
    missed = 0
    print(f"{'planted bug':<26}{'found at seed':>14}{'core s':>9}  what the checker said", flush=True)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for item in pool.map(find_planted, BUGS, [hours] * len(BUGS)):
            missed += item.seed is None
            print(f"{item.name:<26}{item.seed or '-':>14}{item.seconds:>9.1f}  {item.violation[:90]}", flush=True)
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulate hours of several processes under faults.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--planted", action="store_true", help="find the planted bugs, and print how soon")
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings is part of a history.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulate.simulate", *sys.argv[1:]])
    logging.disable(logging.CRITICAL)
    return _planted(min(asked.hours, 2.0), asked.jobs) if asked.planted else _campaign(
        asked.first, asked.seeds, asked.hours, asked.jobs
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
