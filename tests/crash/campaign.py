"""The campaign: one life, killed at each step of its storage in turn, and judged each time.

    python -m tests.crash.campaign --engine sqlite --points 1000

A parent that has loaded everything and opened nothing forks a process for each life and each afterlife: both are as
fresh as a started one, for a tenth of the time. Prints one JSON line: points, lost, doubles, broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import get_args

from tests.conformance.databases import Databases
from tests.crash.history import judge, judge_second_recovery
from tests.crash.kill import Countdown, Where, arm
from tests.crash.life import EPILOGUE, LAST_JUDGEMENT, come_after, live, on_stage
from tests.postgres import PostgresServer

LIFE_MAX_S = 120
SHORTER = 5
"""By so many steps earlier a life is to end that was over before its point."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where a life ends, and, if `then` is not 0, where the one after it ends too."""

    at: int
    where: Where
    then: int = 0


@dataclass(slots=True)
class Verdict:
    points: int = 0
    killed: int = 0
    killed_twice: int = 0
    lost: int = 0
    doubles: int = 0
    broken: int = 0
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)

    def add(self, point: Point, violations: list[str]) -> None:
        for violation in violations:
            kind = violation.partition(":")[0]
            self.lost += kind == "lost"
            self.doubles += kind == "double"
            self.broken += kind not in ("lost", "double")
            if len(self.examples) < 20:
                self.examples.append(f"{point}: {violation}")


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
        # Memory keeps what a killed process wrote as well as a disk does, and is faster.
        shared = Path("/dev/shm")
        folder = Path(tempfile.mkdtemp(prefix="holdbeat-crash-", dir=shared if shared.is_dir() else None))
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
            # A life that hangs is ended by the kernel, and found unfinished.
            signal.alarm(LIFE_MAX_S)
            body()
            code = 0
        except BaseException:
            report.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status) == 9
    if os.WEXITSTATUS(status):
        raise RuntimeError(f"a process failed instead of being killed:\n{report.read_text()}")
    return False


def count_steps(ground: Ground) -> int:
    """How many steps a whole life takes."""
    with ground.fresh() as (url, folder):

        def body() -> None:
            countdown = Countdown(0)
            keep = arm(url, countdown)
            asyncio.run(live(url, folder))
            (folder / "steps").write_text(str(countdown.count))
            del keep

        in_child(body, folder / "report")
        return int((folder / "steps").read_text())


def try_point(ground: Ground, point: Point, verdict: Verdict) -> None:
    """One life, its death, and what came after.

    Lives differ by some steps, since commits are shared as it happens. One that ends before its point is lived again
    with an earlier one.
    """
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

        verdict.points += 1
        try:
            has_died = in_child(first, report)
            if not has_died and point.at > SHORTER:
                verdict.points -= 1
                try_point(ground, replace(point, at=point.at - SHORTER), verdict)
                return
            verdict.killed += has_died
            if point.then:
                verdict.killed_twice += in_child(second, report)
            in_child(lambda: _last(url, folder), report)
            violations = json.loads((folder / "violations").read_text())
        except RuntimeError as error:
            violations = [f"broken: {error}"]
        verdict.add(point, violations)


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


def run(engine: str, count: int, share: tuple[int, int] = (0, 1), seed: int = 0) -> Verdict:
    """Tries `count` points, or this process's share of them."""
    began = time.monotonic()
    verdict = Verdict()
    ground = Ground(engine)
    try:
        points = chosen(count_steps(ground), count, seed)
        for number, point in enumerate(points):
            if number % share[1] == share[0]:
                try_point(ground, point, verdict)
    finally:
        ground.close()
    verdict.seconds = round(time.monotonic() - began, 1)
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills a life at each step of its storage and judges what is left.")
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--share", default="0/1", help="which part of the points: 0/2 or 1/2")
    parser.add_argument("--seed", type=int, default=0)
    value = parser.parse_args()
    logging.disable(logging.CRITICAL)
    part, parts = map(int, value.share.split("/"))
    verdict = run(value.engine, value.points, (part, parts), value.seed)
    print(json.dumps({"engine": value.engine, "seed": value.seed, **asdict(verdict)}), flush=True)
    return 1 if verdict.lost or verdict.doubles or verdict.broken else 0


if __name__ == "__main__":
    sys.exit(main())
