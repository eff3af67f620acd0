"""Whether pages of the dashboard and calls of the API answer as quickly on a large store: `make bench-pages`.

Two servers on each kind of store: one beside a thousand jobs and events, one beside a million jobs, ten thousand
schedules and a hundred thousand events. Requests alternate between them, so that the machine's other business touches
both alike. Prints one JSON line for each store: the ratio of the quickest answers for each address, and the worst.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.timing import progress, stopwatch
from holdbeat.store.sqlite import file as sqlite_file
from holdbeat.web.pages import PAGES
from tests.api.serving import Served
from tests.postgres import PostgresServer
from tests.web.conftest import serve_at

MOST = 2.0
"""So many times as long an answer may take beside many rows."""
NOISE_S = 0.004
"""Differences below this are the machine's."""
WARM_UP = 2
ROUNDS = 8
SQL_NUMBERS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})",
    "postgres": "WITH n(i) AS (SELECT generate_series(1, {count}))",
}
SQL_ID = {
    "sqlite": "printf('{kind}0000000-0000-7000-8000-%012d', {number})",
    "postgres": "'{kind}0000000-0000-7000-8000-' || lpad(({number})::text, 12, '0')",
}
SQL_AGO = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', (-1 * ({seconds})) || ' seconds')",
    "postgres": "now() - make_interval(secs => ({seconds}))",
}


@dataclass(frozen=True, slots=True)
class Extent:
    """How many rows a store is filled with."""

    jobs: int
    schedules: int
    events: int


FEW = Extent(1_000, 1_000, 1_000)
"""As many rows as fill every page, so that both stores show as much."""
MANY = Extent(1_000_000, 10_000, 100_000)
QUICK = Extent(100_000, 10_000, 100_000)


STATUS = (
    "CASE WHEN i % 20 = 1 THEN 'FAILED' WHEN i % 5 = 2 THEN 'QUEUED' WHEN i % 25 = 3 THEN 'SKIPPED' "
    "ELSE 'COMPLETED' END"
)
ENDPOINT = '{"url": "http://127.0.0.1:9/", "method": "GET", "headers": {}, "body": null, "timeout_s": 30}'


def _filling(dialect: str, extent: Extent) -> list[str]:
    """Jobs of a month, of every state, made by schedules; half of the schedules are endpoints."""
    is_postgres = dialect == "postgres"
    json_cast = "::jsonb" if is_postgres else ""
    jobs, schedules, events = (
        SQL_NUMBERS[dialect].format(count=count) for count in (extent.jobs, extent.schedules, extent.events)
    )

    def identity(kind: int, number: str = "i") -> str:
        return SQL_ID[dialect].format(kind=kind, number=number)

    def ago(seconds: str) -> str:
        return SQL_AGO[dialect].format(seconds=seconds)

    def flag(condition: str) -> str:
        return f"({condition})" if is_postgres else f"CASE WHEN {condition} THEN 1 ELSE 0 END"

    created, due = ago(f"2.6 * ({extent.jobs} - i) + 20"), ago("-86400 - i")
    done = f"CASE WHEN i % 5 = 2 THEN NULL ELSE {created} END"
    labels = 'CASE WHEN i % 100 = 0 THEN \'{"team": "shop"}\' ELSE \'{"team": "mail"}\' END'
    return [
        "INSERT INTO schedules (id, name, type, labels, interval_s, next_run_at, wake_at, created_at, endpoint, "
        f"failure_count, adaptive) {schedules} SELECT {identity(3)}, 'schedule ' || i, 'echo', ({labels}){json_cast}, "
        f"86400, {due}, {due}, {ago('100000')}, CASE WHEN i % 2 = 0 THEN '{ENDPOINT}'{json_cast} END, "
        f"CASE WHEN i % 50 = 0 THEN 3 ELSE 0 END, {flag('i % 2 = 0')} FROM n",
        "INSERT INTO schedule_labels (label_name, label_value, label_of, schedule_id) "
        f"{schedules} SELECT 'team', CASE WHEN i % 100 = 0 THEN 'shop' ELSE 'mail' END, "
        f"CASE WHEN i % 2 = 0 THEN 'endpoint' ELSE 'schedule' END, {identity(3)} FROM n",
        "INSERT INTO jobs (id, type, title, status, position, resource, schedule_id, created_at, started_at, "
        f"finished_at, permanently_failed) {jobs} SELECT {identity(1)}, 'echo', 'job ' || i, {STATUS}, i * 100, "
        f"'paused', {identity(3, f'i % {extent.schedules} + 1')}, {created}, {done}, {done}, {flag('i % 20 = 1')} "
        "FROM n",
        "INSERT INTO job_runs (id, job_id, type, worker_id, slot, fence, started_at, finished_at, status, error, "
        f"error_kind) {jobs} SELECT {identity(2)}, {identity(1)}, 'echo', 'w', i % 8, i, {created}, {created}, "
        f"{STATUS}, CASE WHEN i % 20 = 1 THEN 'it broke' END, CASE WHEN i % 20 = 1 THEN 'error' END "
        "FROM n WHERE i % 5 <> 2",
        f"INSERT INTO job_groups (id, name, mode, status, created_at) {schedules} "
        f"SELECT {identity(4)}, 'group ' || i, 'parallel', 'COMPLETED', {ago('5000')} FROM n",
        f"INSERT INTO deliveries (id, event, url, payload, status, created_at, finished_at) {schedules} "
        f"SELECT {identity(5)}, 'job.run.failed', 'http://127.0.0.1:9/', '{{}}', "
        f"CASE WHEN i % 9 = 0 THEN 'FAILED' ELSE 'DELIVERED' END, {ago('5000')}, {ago('4000')} FROM n",
        f"INSERT INTO events (name, at, job_id) {events} SELECT CASE WHEN i % 3 = 0 THEN 'run.ended' WHEN i % 3 = 1 "
        f"THEN 'job.claimed' ELSE 'job.queued' END, {ago(f'2.0 * ({extent.events} - i)')}, {identity(1)} FROM n",
    ]


def fill(url: str, extent: Extent) -> None:
    if url.startswith("sqlite"):
        connection = sqlite_file.connect(url.removeprefix("sqlite:///"))
        for statement in _filling("sqlite", extent):
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()
        return
    with psycopg.connect(url, autocommit=True) as server:
        for statement in _filling("postgres", extent):
            server.execute(statement.encode())
        server.execute("VACUUM ANALYZE")


def addresses(served: Served) -> list[str]:
    """Every page, pages as people narrow them down, and the calls of the API that list something."""
    client = served.client
    newest = client.get("/api/jobs", params={"limit": 1}).json()["items"][0]["id"]
    failed = client.get("/api/jobs", params={"limit": 1, "status": "FAILED"}).json()["items"][0]["id"]
    schedule = client.get("/api/schedules", params={"limit": 1}).json()["items"][0]["id"]
    endpoint = client.get("/api/endpoints", params={"limit": 1}).json()["items"][0]["id"]
    group = client.get("/api/job-groups", params={"limit": 1}).json()["items"][0]["id"]
    one = {"jobs": newest, "schedules": schedule, "endpoints": endpoint, "groups": group}
    paths = []
    for page in PAGES:
        noun = page.path.split("/")[2] if page.path.startswith("/ui/") else ""
        if "{id}" not in page.path:
            paths.append(page.path)
        elif noun in one:
            paths.append(page.path.replace("{id}", one[noun]))
    paths += [f"/ui/jobs/{failed}", "/ui/jobs?status=FAILED", "/ui/jobs?status=QUEUED", "/ui/queue?resource=paused"]
    paths += ["/ui/jobs?q=job+99", "/ui/jobs?type=echo", "/ui/timeline?zoom=24h", "/ui/events?show=all"]
    paths += ["/ui/schedules?sort=next", "/ui/schedules?q=team%3Dshop", "/ui/schedules?state=failing"]
    paths += ["/ui/endpoints?sort=last", "/ui/groups?name=group+9", "/ui/webhooks?status=FAILED"]
    paths += [
        "/api/jobs",
        "/api/jobs?status=FAILED",
        "/api/queue",
        "/api/stats",
        "/api/attention",
        "/api/events/search",
    ]
    paths += ["/api/schedules", "/api/endpoints?failing=true", "/api/schedules?order=next_run", "/api/job-runs"]
    return [*paths, "/api/job-groups", "/api/deliveries", "/api/workers", "/api/limits", "/metrics"]


@contextlib.contextmanager
def servers(urls: dict[Extent, str]) -> Iterator[dict[Extent, Served]]:
    running: dict[Extent, Served] = {}
    with contextlib.ExitStack() as stack:
        for extent, url in urls.items():
            served = serve_at(url, has_worker=False)
            stack.callback(served.stop)
            with stopwatch() as watch:
                fill(url, extent)
            progress(f"  filled with {extent} in {watch.elapsed_s:.0f} s")
            served.client.post("/api/queue/pause", json={"resource": "paused"}).raise_for_status()
            running[extent] = served
        yield running


def measure(name: str, urls: dict[Extent, str], few: Extent, many: Extent) -> dict[str, object]:
    progress(f"{name}: pages beside many rows")
    ratios: dict[str, float] = {}
    slow: dict[str, list[float]] = {}
    with servers(urls) as running:
        paths = {extent: addresses(served) for extent, served in running.items()}
        for place in range(len(paths[few])):
            times: dict[Extent, list[float]] = {few: [], many: []}
            for number in range(WARM_UP + ROUNDS):
                for extent, served in running.items():
                    began, began_cpu = time.perf_counter(), time.process_time()
                    response = served.client.get(paths[extent][place])
                    # SQLite works in this process: its processor time is what nothing else on the machine touches.
                    is_here = name == "sqlite"
                    took = time.process_time() - began_cpu if is_here else time.perf_counter() - began
                    if response.status_code != 200:
                        raise RuntimeError(
                            f"{paths[extent][place]} answered {response.status_code}: {response.text[:300]}"
                        )
                    if number >= WARM_UP:
                        times[extent].append(took)
            # The quickest answer is the one that nothing else on the machine has slowed.
            beside_few, beside_many = min(times[few]), min(times[many])
            path = paths[few][place]
            ratios[path] = round(beside_many / beside_few, 2)
            is_slow = ratios[path] > MOST and beside_many - beside_few > NOISE_S
            if is_slow:
                slow[path] = [round(1e3 * beside_few, 1), round(1e3 * beside_many, 1)]
            mark = "  <--" if is_slow else ""
            progress(f"  {path}: {1e3 * beside_few:.1f} ms, {1e3 * beside_many:.1f} ms, {ratios[path]}{mark}")
    return {"store": name, "jobs": many.jobs, "worst": max(ratios.values()), "slow_ms": slow, "ratios": ratios}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows, for a first impression")
    parser.add_argument("--store", choices=("sqlite", "postgres"), help="only this store")
    options = parser.parse_args(argv)
    few, many = FEW, QUICK if options.quick else MANY
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        if options.store in (None, "sqlite"):
            urls = {extent: f"sqlite:///{Path(folder) / f'{extent.jobs}.db'}" for extent in (few, many)}
            figures.append(measure("sqlite", urls, few, many))
    if options.store in (None, "postgres"):
        with PostgresServer() as server:
            urls = {extent: server.create_database() for extent in (few, many)}
            figures.append(measure("postgres", urls, few, many))
    for figure in figures:
        print(json.dumps(figure))
    return 1 if any(figure["slow_ms"] for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
