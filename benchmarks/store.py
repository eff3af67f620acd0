"""What the two stores can do, as ratios to what the engine underneath can do: `make bench`.

Prints one JSON line per store. Everything is durable: SQLite on a disk with synchronous=FULL, PostgreSQL with fsync
and synchronous_commit. Progress goes to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import flat, limits, lives, steps
from benchmarks.replay import Recording, record_postgres, record_sqlite, replay_postgres, replay_sqlite
from benchmarks.slow_disk import add_option, slow_down
from benchmarks.timing import Rounds, progress
from holdbeat.bench import bare
from holdbeat.interpreter import tune
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.sqlite.store import SqliteStore
from tests.postgres import PostgresServer

BATCH = 100
CONNECTIONS = 4
CONCURRENT_CALLERS = 64
PARTS = ("life", "enqueue", "flat", "steps", "limits")


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    jobs: int
    """Of each caller."""
    rounds: int
    commits: int
    many: int
    few: int = 1_000
    claims: int = 60
    partitions: int = 100_000


FULL = Extent(jobs=4_000, rounds=15, commits=400, many=1_000_000)
QUICK = Extent(jobs=2_000, rounds=3, commits=150, many=50_000, claims=30, partitions=10_000)


class SqliteBench:
    """Measures on new files in one folder."""

    name = "sqlite"
    callers = 1

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def clear(self) -> None:
        """Takes away what was measured before."""
        for path in self._folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def another_place(self) -> str:
        return str(self._folder / f"bench-{next(self._numbers)}.db")

    def place(self) -> str:
        self.clear()
        return self.another_place()

    @contextlib.contextmanager
    def store(self, place: str | None = None) -> Iterator[PersistenceAdapter]:
        with contextlib.closing(SqliteStore(place or self.place(), lives.terms())) as store:
            with store.connection() as connection:
                bare.fill_log(connection)
            yield store

    def record(self, jobs: int) -> Recording:
        with self.store() as store:
            return record_sqlite(store, lambda: lives.live(store, jobs, BATCH, "noop-0"))

    def replay(self, recording: Recording) -> float:
        return replay_sqlite(recording, self.place())

    def bare_life(self, jobs: int) -> float:
        return bare.sqlite_life(self.place(), jobs, BATCH).life

    def single_commits(self, commits: int) -> float:
        return bare.sqlite_single_commits(self.place(), commits)


class PostgresBench:
    """Measures in new databases of one server."""

    name = "postgres"
    callers = CONNECTIONS

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._used: list[str] = []

    def clear(self) -> None:
        """Takes away what was measured before."""
        while self._used:
            self._server.drop_database(self._used.pop())

    def another_place(self) -> str:
        self._used.append(self._server.create_database())
        return self._used[-1]

    def place(self) -> str:
        self.clear()
        return self.another_place()

    @contextlib.contextmanager
    def store(self, place: str | None = None, writers: int = CONNECTIONS) -> Iterator[PersistenceAdapter]:
        with contextlib.closing(PostgresStore(place or self.place(), lives.terms(), writers=writers)) as store:
            yield store

    def record(self, jobs: int) -> Recording:
        """One connection per caller, so that each finds its own jobs again when the steps are replayed."""
        place = self.place()

        def everyone() -> None:
            for number in range(self.callers):
                with self.store(place, writers=1) as store:
                    lives.live(store, jobs // self.callers // BATCH * BATCH, BATCH, f"noop-{number}")

        return record_postgres(everyone)

    def replay(self, recording: Recording) -> float:
        place = self.place()
        with self.store(place):
            """Makes the schema."""
        return replay_postgres(recording, place)

    def bare_life(self, jobs: int) -> float:
        return bare.postgres_life(self.place(), jobs, BATCH, self.callers).life

    def single_commits(self, commits: int) -> float:
        return bare.postgres_single_commits(self.place(), commits)


def measure(bench: SqliteBench | PostgresBench, extent: Extent, parts: set[str]) -> dict[str, Any]:
    """All figures of one store."""
    figures: dict[str, Any] = {"store": bench.name, "batch": BATCH, "connections": bench.callers}
    lived = extent.jobs // BATCH * BATCH * bench.callers

    def store_life() -> float:
        with bench.store() as store:
            return lives.life(store, lived, BATCH, bench.callers)

    def concurrent() -> float:
        with bench.store() as store:
            return lives.enqueue_concurrently(store, extent.commits * 16, CONCURRENT_CALLERS)

    if "life" in parts:
        progress(f"{bench.name}: lives of {lived} jobs at batch {BATCH}")
        recording = bench.record(lived)
        tune()  # the collector would go through all that was recorded, in the Store's time
        result = Rounds(
            {
                "store": store_life,
                "raw": lambda: lived / bench.replay(recording),
                "bare": lambda: bench.bare_life(lived),
            },
            extent.rounds,
        )
        figures["life_per_s"] = result.median("store")
        figures["raw_life_per_s"] = result.median("raw")
        figures["bare_life_per_s"] = result.median("bare")
        figures["life_ratio"] = result.ratio("store", "raw")
        figures["bare_ratio"] = result.ratio("store", "bare")
    if "enqueue" in parts:
        progress(f"{bench.name}: {CONCURRENT_CALLERS} callers enqueue one job at a time")
        result = Rounds(
            {"single commits": lambda: bench.single_commits(extent.commits), "concurrent enqueues": concurrent},
            extent.rounds,
        )
        figures["single_commit_per_s"] = result.median("single commits")
        figures["enqueue_concurrent_per_s"] = result.median("concurrent enqueues")
        figures["enqueue_concurrent_ratio"] = result.ratio("concurrent enqueues", "single commits")
    if "flat" in parts:
        figures.update(flat.measure(bench, extent.few, extent.many, extent.claims))
    if "steps" in parts:
        figures.update(steps.measure(bench, extent.commits, extent.rounds))
    if "limits" in parts:
        figures.update(limits.measure(bench, extent.partitions, extent.commits))
    return figures


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument("--json", action="store_true", help="say nothing but the JSON lines")
    parser.add_argument("--jobs", type=int, help="jobs of each caller in each round")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and rows, for a first impression")
    parser.add_argument("--store", choices=("sqlite", "postgres"), help="only this store")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part")
    parser.add_argument("--folder", help="where the SQLite files go; must be on a disk")
    add_option(parser)
    options = parser.parse_args(argv)
    slow_down(options.flush_ms)
    tune()
    extent = QUICK if options.quick else FULL
    if options.jobs:
        extent = Extent(options.jobs, extent.rounds, extent.commits, extent.many, extent.few, extent.claims)
    parts = set(options.part or PARTS)
    figures: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        if options.json:
            nowhere = stack.enter_context(Path(os.devnull).open("w"))
            stack.enter_context(contextlib.redirect_stderr(nowhere))
        if options.store != "postgres":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdbeat-bench-", dir=options.folder))
            figures.append(measure(SqliteBench(Path(folder)), extent, parts))
            print(json.dumps(figures[-1]), flush=True)
        if options.store != "sqlite":
            server = stack.enter_context(PostgresServer(durable=True))
            figures.append(measure(PostgresBench(server), extent, parts))
            print(json.dumps(figures[-1]), flush=True)
    ratios = [ratio for figure in figures for calls in figure.get("flat", {}).values() for ratio in calls.values()]
    slow = [miss for figure in figures if "steps" in parts for miss in steps.misses(figure["store"], figure)]
    slow += [miss for figure in figures if "limits" in parts for miss in limits.misses(figure)]
    for miss in slow:
        progress(miss)
    return 1 if slow or any(ratio > flat.MOST for ratio in ratios) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
