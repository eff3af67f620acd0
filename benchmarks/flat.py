"""Whether verbs and reads stay as quick, and the process as small, when a million rows stand beside them.

Rows are poured in by plain SQL. For each kind of row there are two stores, one with many and one with few; single calls
alternate between them, so that the machine's other business touches both alike.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import psycopg

from benchmarks import lives
from benchmarks.timing import progress, stopwatch
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Settlement
from holdbeat.domain.run import Outcome
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.opening import open_store
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.reads.list_jobs import list_jobs
from holdbeat.store.reads.stats import stats
from holdbeat.store.recovery.prune import prune
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.running.settle import settle
from holdbeat.store.sqlite import file as sqlite_file
from holdbeat.web.overview import read_overview

WARM_UP = 10
MOST = 1.5
"""So many times as long a call may take beside a million rows."""
KINDS = ("queued", "delayed", "sleeping", "finished")
SLEEPING_SHARE = 10
"""Of chains that sleep there is one where there are so many rows of the other kinds."""
PAST = "2020-01-01T00:00:00.000Z"
FUTURE = "2999-01-01T00:00:00.000Z"

_NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})",
    "postgres": "WITH n(i) AS (SELECT generate_series(1, {count}))",
}
_ID = {
    "sqlite": "printf('{kind}0000000-0000-7000-8000-%012d', i)",
    "postgres": "'{kind}0000000-0000-7000-8000-' || lpad(i::text, 12, '0')",
}
_JOBS = {
    "queued": ("", ""),
    "delayed": (", not_before, hold", f", '{FUTURE}', 1"),
    "sleeping": (", status, retried_by, started_at, finished_at", f", 'CONTINUED', {{tip}}, '{PAST}', '{PAST}'"),
    "finished": (", status, started_at, finished_at", f", 'COMPLETED', '{PAST}', '{PAST}'"),
}

_WAIT = json.dumps([{"kind": "sleep", "key": "$sleep:1", "until": FUTURE}])
_WAITS = {"sqlite": f"'{_WAIT}'", "postgres": f"'{_WAIT}'::json"}


def _pouring(dialect: str, kind: str, count: int) -> list[str]:
    """Statements that make `count` rows of one kind."""
    numbers = _NUMBERS[dialect].format(count=count)
    job_id, run_id = _ID[dialect].format(kind=1), _ID[dialect].format(kind=2)
    tip_id = _ID[dialect].format(kind=3)
    columns, values = (text.format(tip=tip_id) for text in _JOBS[kind])
    statements = [
        f"INSERT INTO jobs (id, type, position, created_at{columns}) {numbers} "
        f"SELECT {job_id}, 'noop', i * 100, '{PAST}'{values} FROM n"
    ]
    if kind == "sleeping":
        statements.append(
            "INSERT INTO jobs (id, type, position, created_at, not_before, hold, retry_of, retry_kind, root_id, waits) "
            f"{numbers} SELECT {tip_id}, 'noop', i * 100, '{PAST}', '{FUTURE}', 1, {job_id}, 'continue', {job_id}, "
            f"{_WAITS[dialect]} FROM n"
        )
    if kind in ("finished", "sleeping"):
        status = "COMPLETED" if kind == "finished" else "CONTINUED"
        statements.append(
            "INSERT INTO job_runs (id, job_id, type, worker_id, started_at, finished_at, status) "
            f"{numbers} SELECT {run_id}, {job_id}, 'noop', 'w', '{PAST}', '{PAST}', '{status}' FROM n"
        )
    if dialect == "postgres":
        # In one statement the literals of a SELECT are text until they meet their columns.
        statements = [s.replace(f"'{PAST}'", f"'{PAST}'::timestamptz") for s in statements]
        statements = [s.replace(f"'{FUTURE}'", f"'{FUTURE}'::timestamptz") for s in statements]
    return statements


def pour(store: PersistenceAdapter, kind: str, count: int) -> None:
    """Fills a new store."""
    if store.url.startswith("sqlite"):
        connection = sqlite_file.connect(store.url.removeprefix("sqlite:///"))
        for statement in _pouring("sqlite", kind, count):
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()
        return
    with psycopg.connect(store.url, autocommit=True) as server:
        for statement in _pouring("postgres", kind, count):
            server.execute(statement.encode())
        server.execute("VACUUM ANALYZE")
        server.execute("CHECKPOINT")


class Caller:
    """Calls each verb and read once a round on one store, and keeps how long each took."""

    def __init__(self, store: PersistenceAdapter, rounds: int) -> None:
        self.store = store
        self.times: dict[str, list[float]] = {}
        self._ask: Any = SimpleNamespace(service=SimpleNamespace(store=store), zone=ZoneInfo("UTC"))
        store.write_sync(enqueue, [NewJob("noop", priority=1) for _ in range(rounds)])

    def call_each(self, number: int) -> None:
        store = self.store
        # The first ones read the pages that later ones find in memory.
        is_warm = number >= WARM_UP

        def timed(name: str, call: Callable[[], Any]) -> Any:
            with stopwatch() as watch:
                result = call()
            if is_warm:
                self.times.setdefault(name, []).append(watch.elapsed_s)
            return result

        vacancy = Vacancy("worker", [number], (), ["noop"])
        claims = timed("claim", lambda: store.write_sync(claim, vacancy))
        if len(claims) != 1:
            raise RuntimeError("a claim found nothing although jobs were ready")
        lease = claims[0].lease
        ended = [Settlement(lease.id, lease.worker_id, lease.fence, Outcome.completed())]
        timed("settle", lambda: store.write_sync(settle, ended))
        timed("enqueue", lambda: store.write_sync(enqueue, [NewJob("noop", priority=1)]))
        timed("list", lambda: store.read_sync(list_jobs, limit=50))
        timed("stats", lambda: store.read_sync(stats))
        timed("overview", lambda: store.read_sync(read_overview, self._ask))


def measure(bench: Any, few: int, many: int, claims: int) -> dict[str, Any]:
    """`flat` for each kind of row and each call, and `rss_mb` of a process that works beside the finished ones."""
    flat: dict[str, dict[str, float]] = {}
    rss_mb = 0.0
    for kind in KINDS:
        most = many // SLEEPING_SHARE if kind == "sleeping" else many
        progress(f"{bench.name}: calls beside {most:,} {kind} rows")
        with ExitStack() as stack:
            callers = {}
            for count in (few, most):
                store = stack.enter_context(bench.store(bench.another_place()))
                pour(store, kind, count)
                callers[count] = Caller(store, claims + WARM_UP)
            for number in range(claims + WARM_UP):
                for caller in callers.values():
                    caller.call_each(number)
            flat[kind] = {}
            for name, times in callers[most].times.items():
                beside_many, beside_few = statistics.median(times), statistics.median(callers[few].times[name])
                flat[kind][name] = round(beside_many / beside_few, 2)
                progress(
                    f"  {name}: {beside_few * 1e3:.2f} ms beside {few:,}, {beside_many * 1e3:.2f} ms beside {most:,}"
                )
            if kind == "finished":
                rss_mb = _rss_of_another(callers[most].store.url)
        bench.clear()
    return {"flat": flat, "rss_mb": rss_mb}


def _rss_of_another(url: str) -> float:
    made = subprocess.run([sys.executable, "-m", "benchmarks.flat", url], capture_output=True, text=True, check=True)
    return float(json.loads(made.stdout)["rss_mb"])


def work_on(url: str) -> float:
    """Lists, claims and prunes on a store; the most memory that this process ever had, in MB."""
    store = open_store(url, lives.terms())
    cursor = None
    for _ in range(20):
        page = store.read_sync(list_jobs, limit=100, cursor=cursor)
        cursor = page.next_cursor
    store.write_sync(enqueue, [NewJob("noop") for _ in range(200)])
    store.write_sync(claim, Vacancy("other", list(range(200)), (), ["noop"]))
    for _ in range(20):
        store.write_sync(prune, store.clock.now())
    store.close()
    # Not what getrusage says: that begins with the memory of the process that started this one.
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return round(int(line.split()[1]) / 1024, 1)


if __name__ == "__main__":
    print(json.dumps({"rss_mb": work_on(sys.argv[1])}))
