"""A long time under load: does anything grow that should not?

    python -m benchmarks.soak [--minutes 120] [--rate 50] [--store postgres]

Worker processes share one store while jobs are submitted at a steady rate; now and then one of them is killed with
SIGKILL and replaced, while another is watched from beginning to end. What has ended is removed after ten seconds.
Memory, descriptors and threads of the watched one, the write-ahead log, the size of the store and its rows are sampled.
In the end everything that was submitted must have ended, and no series may end higher than it began. The samples and a
picture of them are written to a folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.soak_report import Sample, leaks, picture
from benchmarks.timing import progress
from holdbeat.bench.engine import bench_app, unfinished
from tests.postgres import PostgresServer

KILL_EVERY_S = 60.0
SAMPLES = 120
COUNT_EVERY_S = 2.0
"""How often the rows are counted. A sample has the lowest count since the one before: what a pass of the retention
leaves, and not what came in the minute after it."""
PATIENCE_S = 300.0
RETENTION_DAYS = 0.0001


class Crew:
    """A worker process that is watched, and one that is replaced from time to time."""

    def __init__(self, url: str) -> None:
        self._command = [sys.executable, "-m", "holdbeat.bench.worker", url, "16"]
        self._environment = {**os.environ, "HOLDBEAT_BENCH_RETENTION_DAYS": str(RETENTION_DAYS)}
        self._watched, self._doomed = self._start(), self._start()
        self.killed = 0

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, env=self._environment)

    def kill_one(self) -> None:
        self._doomed.send_signal(signal.SIGKILL)
        self._doomed.wait()
        self.killed += 1
        self._doomed = self._start()

    def sample(self) -> dict[str, float]:
        process = Path(f"/proc/{self._watched.pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return {
            "rss_mb": int(status["VmRSS"].split()[0]) / 1024,
            "threads": int(status["Threads"]),
            "descriptors": len(os.listdir(process / "fd")),
        }

    def stop(self) -> None:
        for process in (self._watched, self._doomed):
            process.terminate()
        for process in (self._watched, self._doomed):
            process.wait()


def _sizes_of_file(path: Path) -> dict[str, float]:
    log = path.with_name(f"{path.name}-wal")
    return {
        "log_mb": log.stat().st_size / 2**20 if log.exists() else 0.0,
        "store_mb": path.stat().st_size / 2**20,
    }


def _sizes_of_database(url: str) -> dict[str, float]:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None
        return {"store_mb": row[0] / 2**20}


@contextlib.contextmanager
def store(kind: str, folder: Path) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
    """The address of a new store, and what tells its size."""
    if kind == "sqlite":
        path = folder / "soak.db"
        yield f"sqlite:///{path}", lambda: _sizes_of_file(path)
        return
    with PostgresServer(durable=True) as server:
        url = server.create_database()
        yield url, lambda: _sizes_of_database(url)


def soak(minutes: float, rate: float, url: str, sizes: Callable[[], dict[str, float]]) -> dict[str, Any]:
    """Runs the load and returns what was seen."""
    app, _ = bench_app(url)
    app.store.read_sync(lambda tx: None)
    crew = Crew(url)
    samples: list[Sample] = []
    submitted = 0
    began = sampled = counted = killed = time.monotonic()
    every_s = max(1.0, minutes * 60 / SAMPLES)
    rows: list[float] = []
    try:
        while (now := time.monotonic()) - began < minutes * 60:
            due = int((now - began) * rate) - submitted
            if due > 0:
                app.enqueue_many_sync([app.with_options(retries=3).call("noop")] * due)
                submitted += due
            if now - counted >= COUNT_EVERY_S or not rows:
                counted = now
                rows.append(_rows(app))
            if now - sampled >= every_s:
                sampled = now
                samples.append({"at_s": now - began, **crew.sample(), **sizes(), "rows": min(rows)})
                rows.clear()
                progress(f"{(now - began) / 60:.1f} min: {submitted} submitted, {samples[-1]}")
            if now - killed >= KILL_EVERY_S:
                killed = now
                crew.kill_one()
            time.sleep(0.05)
        until = time.monotonic() + PATIENCE_S
        while unfinished(app) and time.monotonic() < until:
            time.sleep(0.2)
        left = unfinished(app)
    finally:
        crew.stop()
        app.close()
    return {"submitted": submitted, "unfinished": left, "workers_killed": crew.killed, "samples": samples}


def _rows(app: Any) -> float:
    """Of the tables that grow with every job."""
    sql = "SELECT (SELECT count(*) FROM jobs) + (SELECT count(*) FROM job_runs) + (SELECT count(*) FROM events)"
    return float(app.store.read_sync(lambda tx: tx.rows(sql))[0][0])


def main() -> int:
    parser = argparse.ArgumentParser(description="Run for a long time under load and look for what grows.")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--rate", type=float, default=50, help="jobs per second")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder for the samples and their picture")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix=".holdbeat-soak-") as folder:
        try:
            with store(options.store, Path(folder)) as (url, sizes):
                seen = soak(options.minutes, options.rate, url, sizes)
        except KeyboardInterrupt:
            progress("stopped")
            return 130
    options.output.mkdir(parents=True, exist_ok=True)
    title = f"Soak on {options.store}, {options.minutes:g} min, {options.rate:g} jobs per second"
    (options.output / f"soak-{options.store}.json").write_text(json.dumps(seen, indent=1) + "\n")
    (options.output / f"soak-{options.store}.svg").write_text(picture(seen["samples"], title))
    result = leaks(seen.pop("samples"))
    print(json.dumps({**seen, "grown": result, "written_to": str(options.output)}))
    return 1 if result or seen["unfinished"] else 0


if __name__ == "__main__":
    sys.exit(main())
