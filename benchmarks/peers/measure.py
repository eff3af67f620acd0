"""One contestant, measured once."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import psycopg

from benchmarks.peers.contestants import Contestant, RawContestant, Store
from benchmarks.peers.environments import ROOT
from benchmarks.peers.processes import Failed, Worker, cpu_seconds, idle_cpu_percent, output_of, rss_mb, running
from benchmarks.peers.programs.common import LINE_WIDTH
from benchmarks.peers.servers import Servers
from holdbeat.app import App
from holdbeat.bench import bare
from holdbeat.bench.engine import unfinished
from holdbeat.settings import Settings

BATCH = 100
CONNECTIONS = 4
START_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    jobs: int
    rounds: int
    commits: int
    probes: int
    idle_s: float
    limit_s: float
    """For each step of a contestant."""
    probe_limit_s: float


FULL = Extent(jobs=20_000, rounds=3, commits=2_000, probes=200, idle_s=5.0, limit_s=180.0, probe_limit_s=20.0)
QUICK = Extent(jobs=2_000, rounds=1, commits=300, probes=40, idle_s=2.0, limit_s=60.0, probe_limit_s=4.0)


@dataclass(slots=True)
class Outcome:
    """Figures by name, and why some are missing."""

    figures: dict[str, float] = field(default_factory=dict)
    error: str | None = None


def measure_raw(contestant: RawContestant, servers: Servers, extent: Extent) -> Outcome:
    """Single commits, claim and settle, and a whole life in plain SQL."""
    if contestant.store is Store.SQLITE:
        commits = bare.sqlite_single_commits(servers.new_file(), extent.commits)
        rates = bare.sqlite_life(servers.new_file(), extent.jobs // BATCH * BATCH, BATCH)
    else:
        urls = [servers.new_database(), servers.new_database()]
        try:
            commits = bare.postgres_single_commits(urls[0], extent.commits)
            rates = bare.postgres_life(urls[1], extent.jobs // BATCH * BATCH, BATCH, CONNECTIONS)
        finally:
            for url in urls:
                servers.postgres.drop_database(url)
    return Outcome({"one_per_s": commits, "drain_per_s": rates.claim_and_settle, "life_per_s": rates.life})


def measure(contestant: Contestant, servers: Servers, extent: Extent) -> Outcome:
    """All figures of one contestant on a new store; what was measured before a failure is kept."""
    outcome = Outcome()
    try:
        programs = contestant.environment.ready() if contestant.environment else Path(sys.executable).parent
        with _new_store(contestant, servers) as url:
            _Trial(contestant, servers, extent, programs, url, outcome.figures).run()
    except Exception as error:
        outcome.error = str(error) or type(error).__name__
    return outcome


@contextmanager
def _new_store(contestant: Contestant, servers: Servers) -> Iterator[str]:
    if contestant.store is Store.SQLITE:
        path = servers.new_file()
        yield path if contestant.unfinished else f"sqlite:///{path}"
    elif contestant.store is Store.POSTGRES:
        url = servers.new_database()
        try:
            yield url
        finally:
            servers.postgres.drop_database(url)
    else:
        servers.redis.start()
        servers.redis.clear()
        yield servers.redis.url


class _Trial:
    """The steps of one contestant on one store."""

    def __init__(
        self,
        contestant: Contestant,
        servers: Servers,
        extent: Extent,
        programs: Path,
        url: str,
        figures: dict[str, float],
    ) -> None:
        self._contestant = contestant
        self._servers = servers
        self._extent = extent
        self._programs = programs
        self._url = url
        self._figures = figures
        self._module = f"benchmarks.peers.programs.{contestant.program}"
        self._lines = Path(f"/dev/shm/holdbeat-bench-{os.getpid()}.lines")
        self._log = servers.folder / "worker.log"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDBEAT_")} | {
            "BENCH_STORE": url,
            "BENCH_LINES": str(self._lines),
            "PYTHONPATH": str(ROOT),
            "PATH": f"{programs}:{os.environ.get('PATH', '')}",
        }

    def run(self) -> None:
        self._lines.unlink(missing_ok=True)
        self._log.unlink(missing_ok=True)
        try:
            self._call("setup")
            total = self._enqueue()
            self._lines.touch()
            if self._contestant.workers > 1:
                self._holdbeat("queue", "pause")
            with ExitStack() as counting:
                # Open before the clock starts: to open a store takes some 40 ms.
                count_unfinished = counting.enter_context(_counter(self._contestant, self._servers, self._url))
                with running([self._worker() for _ in range(self._contestant.workers)]) as workers:
                    if self._contestant.workers > 1:
                        self._begin_together()
                    self._drain(workers, total, count_unfinished)
                    counting.close()
                    if not self._contestant.is_drain_only:
                        self._rest(workers[0])
        finally:
            self._lines.unlink(missing_ok=True)

    def _enqueue(self) -> int:
        """Fills the store, each way for a part of the jobs; the number of jobs in it."""
        jobs = self._extent.jobs // self._contestant.divisor
        one, by_callers = (0, 0) if self._contestant.is_drain_only else (jobs // 10, jobs // 5)
        answer = self._call("enqueue", str(one), str(by_callers), str(jobs - one - by_callers))
        for name in ("one", "callers", "bulk"):
            if answer[name]:
                self._figures[f"{name}_per_s"] = answer[name]["count"] / answer[name]["seconds"]
        if self._contestant.is_drain_only:
            self._figures.pop("bulk_per_s", None)
        return int(answer["total"])

    def _worker(self) -> Worker:
        names = {"bin": str(self._programs), "store": self._url, "program": self._module}
        command = [word.format(**names) for word in self._contestant.worker]
        return Worker(command, self._environment, self._servers.folder, self._log)

    def _begin_together(self) -> None:
        """Lets a paused queue go on when all workers are there."""
        give_up = time.monotonic() + START_LIMIT_S
        while len(json.loads(self._holdbeat("workers", "--json"))["items"]) < self._contestant.workers:
            if time.monotonic() > give_up:
                raise Failed(f"the workers were not there after {START_LIMIT_S:g} s")
            time.sleep(0.1)
        self._holdbeat("queue", "resume")

    def _drain(self, workers: Sequence[Worker], total: int, count_unfinished: Callable[[], int]) -> None:
        """From the clock in the first line that a handler wrote until the store has nothing unfinished."""
        server = self._servers.postgres_pid() if self._contestant.store is Store.POSTGRES else None
        self._wait_for_lines(1, workers, START_LIMIT_S, 0.002)
        roots = [worker.pid for worker in workers] + ([server] if server else [])
        before, begun = sum(map(cpu_seconds, roots)), self._line_count()
        self._wait_for_lines(total, workers, self._extent.limit_s, 0.01)
        give_up = time.monotonic() + self._extent.limit_s
        while count_unfinished() > 0:
            if time.monotonic() > give_up:
                raise Failed(f"the store had unfinished jobs {self._extent.limit_s:g} s after all had run")
            time.sleep(0.005)
        ended = time.monotonic()
        after = sum(map(cpu_seconds, roots))
        lines = self._lines.read_bytes().splitlines()
        missing = total - len({line.split()[0] for line in lines})
        if missing:
            raise Failed(f"{missing} of {total} jobs did not run")
        self._figures["drain_per_s"] = total / (ended - float(lines[0].split()[1]))
        if server and begun < total // 2:
            self._figures["cpu_us_per_job"] = 1e6 * (after - before) / (total - begun)
        if "bulk_per_s" in self._figures:
            rates = self._figures["bulk_per_s"], self._figures["drain_per_s"]
            self._figures["life_per_s"] = 1 / sum(1 / rate for rate in rates)

    def _rest(self, worker: Worker) -> None:
        """What the worker holds and costs when the queue is empty, and how soon it starts what comes then."""
        self._figures["rss_mb"] = rss_mb(worker.pid)
        time.sleep(self._extent.idle_s / 4)
        self._figures["idle_cpu_percent"] = idle_cpu_percent(worker.pid, self._extent.idle_s)
        answer = self._call("probe", str(self._extent.probes), str(self._extent.probe_limit_s))
        cuts = statistics.quantiles(answer["latencies_ms"], n=100, method="inclusive")
        self._figures["start_p50_ms"], self._figures["start_p99_ms"] = cuts[49], cuts[98]

    def _line_count(self) -> int:
        return self._lines.stat().st_size // LINE_WIDTH

    def _wait_for_lines(self, count: int, workers: Sequence[Worker], limit_s: float, pause_s: float) -> None:
        give_up = time.monotonic() + limit_s
        while self._line_count() < count:
            for worker in workers:
                worker.check()
            if time.monotonic() > give_up:
                raise Failed(f"after {limit_s:g} s {self._line_count()} of {count} jobs had run")
            time.sleep(pause_s)

    def _call(self, *arguments: str) -> Any:
        """A verb of the contestant's program, in a process of its own."""
        command = [str(self._programs / "python"), "-m", self._module, *arguments]
        limit_s = self._extent.limit_s + (self._extent.probe_limit_s if arguments[0] == "probe" else 0)
        return json.loads(output_of(command, self._environment, self._servers.folder, limit_s).splitlines()[-1])

    def _holdbeat(self, *arguments: str) -> str:
        command = [str(self._programs / "holdbeat"), *arguments, "--store", self._url]
        return output_of(command, self._environment, self._servers.folder, self._extent.limit_s)


@contextmanager
def _counter(contestant: Contestant, servers: Servers, url: str) -> Iterator[Callable[[], int]]:
    """A function that asks the store how many jobs are not finished; the store is open when it is handed out."""
    if not contestant.unfinished:
        app = App(settings=Settings().with_changes(store=url))
        try:
            unfinished(app)
            yield lambda: unfinished(app)
        finally:
            app.close()
    elif contestant.store is Store.SQLITE:
        connection = apsw.Connection(url, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            yield lambda: int(str(connection.execute(contestant.unfinished[0]).get))
        finally:
            connection.close()
    elif contestant.store is Store.POSTGRES:
        with psycopg.connect(url, autocommit=True) as session:
            yield lambda: session.execute(contestant.unfinished[0].encode()).fetchall()[0][0]
    else:
        yield lambda: sum(servers.redis.number(*command.split()) for command in contestant.unfinished)
