"""The campaign: one life, killed at each step of its storage in turn, and judged each time.

    python -m tests.crash.campaign --points 10000 [--engine sqlite] [--jobs 3] [--seed 1]

Several processes share the points. Each has loaded everything and opened nothing, and forks a process for each life and
each afterlife: both are as fresh as a started one, for a tenth of the time. What a killed process wrote is in the
page cache whatever file system it is on, so that all files are kept in memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib
import json
import logging
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import get_args

from holdbeat.handlers.die_with_parent import die_with
from tests.conformance.databases import Databases
from tests.crash.history import judge, judge_second_recovery
from tests.crash.kill import Countdown, Where, arm
from tests.crash.life import EPILOGUE, LAST_JUDGEMENT, come_after, live, on_stage
from tests.postgres import VARIABLE, PostgresServer

LIFE_MAX_S = 120
MEMORY = Path("/dev/shm")
ON_SQLITE = 0.7
"""The part of the points that are on SQLite where both stores are tried."""
REPORT_EVERY_S = 30.0
SHORTER = 5
"""By so many steps earlier a life is to end that was over before its point."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where a life ends, and, if `then` is not 0, where the one after it ends too."""

    at: int
    where: Where
    then: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    point: Point
    killed: bool = False
    killed_twice: bool = False
    violations: tuple[str, ...] = ()


@dataclass(slots=True)
class Verdict:
    engine: str
    points: int = 0
    killed: int = 0
    killed_twice: int = 0
    lost: int = 0
    doubles: int = 0
    broken: int = 0
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.points += 1
        self.killed += outcome.killed
        self.killed_twice += outcome.killed_twice
        for violation in outcome.violations:
            kind = violation.partition(":")[0]
            self.lost += kind == "lost"
            self.doubles += kind == "double"
            self.broken += kind not in ("lost", "double")
            if len(self.examples) < 20:
                self.examples.append(f"{outcome.point}: {violation}")

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubles or self.broken)

    def __str__(self) -> str:
        return (
            f"{self.engine}: {self.points:,} points in {self.seconds:,.0f} s, {self.killed:,} killed, "
            f"{self.killed_twice:,} killed again in recovery: {self.lost} lost, {self.doubles} doubled, "
            f"{self.broken} broken"
        )


class Ground:
    """Where lives take place: a folder with a store for each of them."""

    def __init__(self, engine: str) -> None:
        self._databases: Databases | None = None
        self._cleanup = contextlib.ExitStack()
        if engine == "postgres":
            server = self._cleanup.enter_context(PostgresServer())
            self._databases = self._cleanup.enter_context(contextlib.closing(Databases(server)))

    @contextlib.contextmanager
    def fresh(self) -> Iterator[tuple[str, Path]]:
        folder = Path(tempfile.mkdtemp(prefix="holdbeat-crash-"))
        url = f"sqlite:///{folder / 'life.db'}" if self._databases is None else self._databases.take()
        try:
            yield url, folder
        finally:
            if self._databases is not None:
                self._databases.give_back(url)
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        self._cleanup.close()


def in_child(body: Callable[[], object], report: Path) -> bool:
    """Runs `body` in a process of its own; True if that was killed. What it raises is in `report`."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            # A life that hangs is ended by the kernel.
            signal.alarm(LIFE_MAX_S)
            body()
            code = 0
        except BaseException:
            report.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) == signal.SIGKILL:
            return True
        raise RuntimeError(f"a process was ended by signal {os.WTERMSIG(status)}; 14: it hung for {LIFE_MAX_S} s")
    if os.WEXITSTATUS(status):
        raise RuntimeError(f"a process failed instead of being killed:\n{report.read_text()}")
    return False


def count_steps(ground: Ground) -> int:
    """How many steps a whole life takes. What it had to load is loaded here too, for those that follow."""
    with ground.fresh() as (url, folder):

        def body() -> None:
            countdown = Countdown(0)
            keep = arm(url, countdown)
            asyncio.run(live(url, folder))
            (folder / "steps").write_text(json.dumps([countdown.count, sorted(sys.modules)]))
            del keep

        in_child(body, folder / "report")
        count, modules = json.loads((folder / "steps").read_text())
    for name in modules:
        if name.startswith("holdbeat."):
            importlib.import_module(name)
    return int(count)


def try_point(ground: Ground, point: Point) -> Outcome:
    """One life, its death, and what came after.

    Lives differ by some steps, since commits are shared as it happens. One that ends before its point is lived again
    with an earlier one.
    """
    while not (outcome := _try_once(ground, point)).killed and not outcome.violations and point.at > SHORTER:
        point = replace(point, at=point.at - SHORTER)
    return outcome


def _try_once(ground: Ground, point: Point) -> Outcome:
    with ground.fresh() as (url, folder):
        report = folder / "report"

        def first() -> None:
            keep = arm(url, Countdown(point.at, point.where))
            asyncio.run(live(url, folder))
            del keep

        def second() -> None:
            keep = arm(url, Countdown(point.then, point.where))
            asyncio.run(come_after(url, folder))
            del keep

        killed = killed_twice = False
        try:
            killed = in_child(first, report)
            if not killed:
                return Outcome(point)
            killed_twice = bool(point.then) and in_child(second, report)
            in_child(lambda: _last(url, folder), report)
            violations = json.loads((folder / "violations").read_text())
        except RuntimeError as error:
            violations = [f"broken: {error}"]
        return Outcome(point, killed, killed_twice, tuple(violations))


def _last(url: str, folder: Path) -> None:
    asyncio.run(come_after(url, folder, LAST_JUDGEMENT))
    asyncio.run(_judged(url, folder))


async def _judged(url: str, folder: Path) -> None:
    async with on_stage(url, folder, EPILOGUE) as life:
        me = life.stage.supervisor.worker.id
        violations = [*judge(life.store, folder / "diary", me), *await judge_second_recovery(life)]
    (folder / "violations").write_text(json.dumps(violations))


def chosen(steps: int, count: int, seed: int) -> list[Point]:
    """Points spread evenly over a life; where there are more than steps, each step is died at in several ways.

    Seed 0 begins at the first step; the others begin somewhere within the first stride, so that several short runs with
    different seeds share a long one.
    """
    ways = get_args(Where)
    every = [Point(at, where) for where in ways for at in range(1, steps + 1)]
    stride = max(1.0, len(every) / count)
    choice = random.Random(seed)
    offset = choice.random() * stride if seed else 0.0
    picked = [every[int(number * stride + offset) % len(every)] for number in range(min(count, len(every)))]
    # Every fifth life is followed by one that dies too, in the middle of recovery.
    return [
        Point(point.at, point.where, choice.randint(1, 60)) if number % 5 == 4 else point
        for number, point in enumerate(picked)
    ]


class _Here:
    """What a process of the pool has made ready."""

    ground: Ground
    steps: int


def _make_ready(engine: str) -> None:
    die_with(os.getppid())
    logging.disable(logging.CRITICAL)
    _Here.ground = Ground(engine)
    _Here.steps = count_steps(_Here.ground)
    # The collector would write into what all forked processes share, and each would get a copy.
    gc.collect()
    gc.freeze()


def _steps() -> int:
    return _Here.steps


def _outcome(point: Point) -> Outcome:
    return try_point(_Here.ground, point)


def run(engine: str, count: int, jobs: int, seed: int, tell: Callable[[str], None]) -> Verdict:
    """Tries `count` points in `jobs` processes side by side."""
    began = reported_at = time.monotonic()
    verdict = Verdict(engine)
    with contextlib.ExitStack() as cleanup:
        if engine == "postgres":
            os.environ[VARIABLE] = cleanup.enter_context(PostgresServer()).url()
        spawn = multiprocessing.get_context("spawn")
        pool = cleanup.enter_context(ProcessPoolExecutor(jobs, spawn, _make_ready, (engine,)))
        points = chosen(pool.submit(_steps).result(), count, seed)
        for done in as_completed([pool.submit(_outcome, point) for point in points]):
            verdict.add(done.result())
            verdict.seconds = round(time.monotonic() - began, 1)
            if time.monotonic() > reported_at + REPORT_EVERY_S:
                reported_at = time.monotonic()
                left_s = verdict.seconds * (len(points) - verdict.points) / verdict.points
                tell(f"{verdict} (of {len(points):,}; about {left_s / 60:.0f} min left)")
    return verdict


def _parts(engine: str, points: int) -> dict[str, int]:
    if engine != "both":
        return {engine: points}
    on_sqlite = round(points * ON_SQLITE)
    return {"sqlite": on_sqlite, "postgres": points - on_sqlite}


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills a life at each step of its storage and judges what is left.")
    parser.add_argument("--engine", choices=("both", "sqlite", "postgres"), default="both")
    parser.add_argument("--points", type=int, default=1000, help="how many deaths, over all stores")
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1, help="how many processes side by side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print each store's verdict as a line of JSON")
    asked = parser.parse_args()
    if MEMORY.is_dir() and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = str(MEMORY)
    verdicts = []
    for engine, points in _parts(asked.engine, asked.points).items():
        verdict = run(engine, points, asked.jobs, asked.seed, lambda line: print(line, file=sys.stderr, flush=True))
        print(json.dumps(asdict(verdict)) if asked.json else verdict, flush=True)
        verdicts.append(verdict)
    if asked.json:
        return 0 if all(verdict.is_clean for verdict in verdicts) else 1
    for verdict in verdicts:
        for example in verdict.examples:
            print(f"  {verdict.engine} {example}")
    total = sum(verdict.points for verdict in verdicts)
    twice = sum(verdict.killed_twice for verdict in verdicts)
    found = sum(verdict.lost + verdict.doubles + verdict.broken for verdict in verdicts)
    print(
        f"{total:,} points with seed {asked.seed}, {twice:,} killed again in recovery: "
        f"{f'{found} BREACHES' if found else 'nothing lost, nothing doubled, nothing broken'}"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
