"""A long time under load: does anything grow that should not?

    python -m benchmarks.soak [--minutes 60] [--rate 50]

Worker processes share one SQLite file while jobs are submitted at a steady rate; now and then one is killed with
SIGKILL and replaced. Memory, open descriptors and the write-ahead log are sampled. In the end everything that was
submitted must have ended, and one JSON line says what grew.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.timing import progress
from holdbeat.bench.engine import bench_app, unfinished

WORKERS = 2
SAMPLE_S = 10.0
KILL_EVERY_S = 60.0
PATIENCE_S = 300.0


class Crew:
    """Worker processes on one store, replaced when they die."""

    def __init__(self, url: str) -> None:
        self._command = [sys.executable, "-m", "holdbeat.bench.worker", url, "16"]
        self.processes = [subprocess.Popen(self._command) for _ in range(WORKERS)]
        self.killed = 0

    def kill_one(self) -> None:
        """Kills the oldest, so that each lives for a while, and starts another in its place."""
        oldest = self.processes.pop(0)
        oldest.send_signal(signal.SIGKILL)
        oldest.wait()
        self.killed += 1
        self.processes.append(subprocess.Popen(self._command))

    def sample(self) -> dict[str, float]:
        youngest = self.processes[0].pid
        status = Path(f"/proc/{youngest}/status").read_text().splitlines()
        rss_kb = int(next(line for line in status if line.startswith("VmRSS")).split()[1])
        return {"rss_mb": rss_kb / 1024, "descriptors": len(os.listdir(f"/proc/{youngest}/fd"))}

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()


def soak(minutes: float, rate: float, folder: Path) -> dict[str, Any]:
    """Runs the load and returns what was seen."""
    path = folder / "soak.db"
    app, _ = bench_app(f"sqlite:///{path}", retention_days=0.0001)
    app.store.read_sync(lambda tx: None)
    crew = Crew(f"sqlite:///{path}")
    samples: list[dict[str, float]] = []
    submitted = 0
    began = sampled = killed = time.monotonic()
    try:
        while (now := time.monotonic()) - began < minutes * 60:
            due = int((now - began) * rate) - submitted
            if due > 0:
                app.enqueue_many_sync([app.with_options(retries=3).call("noop")] * due)
                submitted += due
            if now - sampled >= SAMPLE_S:
                sampled = now
                wal = path.with_name("soak.db-wal")
                samples.append({**crew.sample(), "wal_mb": wal.stat().st_size / 2**20 if wal.exists() else 0.0})
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
    half = max(1, len(samples) // 2)
    growth = {
        name: round(
            statistics.median(s[name] for s in samples[half:] or samples)
            - statistics.median(s[name] for s in samples[:half]),
            2,
        )
        for name in (samples[0] if samples else {})
    }
    return {"submitted": submitted, "unfinished": left, "workers_killed": crew.killed, "growth": growth}


def main() -> int:
    parser = argparse.ArgumentParser(description="Run for a long time under load and look for what grows.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=50, help="jobs per second")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix=".holdbeat-soak-") as folder:
        try:
            figures = soak(given.minutes, given.rate, Path(folder))
        except KeyboardInterrupt:
            progress("stopped")
            return 130
    print(json.dumps(figures))
    return 0 if figures["unfinished"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
