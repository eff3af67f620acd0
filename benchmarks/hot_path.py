"""What one job costs in processor time, in this process and in the database's: `python -m benchmarks.hot_path`.

Processor time says more than jobs per second on a machine that others use too. The jobs do nothing: they are enqueued
through the store, then claimed and settled cycle by cycle as a worker does it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.lives import terms
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Settlement
from holdbeat.domain.run import Outcome
from holdbeat.domain.submission import Submission
from holdbeat.engine.slots import Slots
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.submit import submit
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.settle_and_claim import settle_and_claim
from holdbeat.store.sqlite.store import SqliteStore
from tests.postgres import PostgresServer

TYPE = "noop"
ENQUEUE_BATCH = 500
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Cost:
    jobs: int
    wall_s: float
    client_s: float
    server_s: float

    def figures(self) -> dict[str, float]:
        """Jobs per second by the clock, and microseconds of processor time per job."""
        return {
            "per_s": round(self.jobs / self.wall_s),
            "client_us": round(self.client_s / self.jobs * 1e6, 1),
            "server_us": round(self.server_s / self.jobs * 1e6, 1),
            "cpu_us": round((self.client_s + self.server_s) / self.jobs * 1e6, 1),
        }


def backends(url: str) -> list[int]:
    """The processes of the database that serve a store."""
    with psycopg.connect(url) as connection:
        result = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'holdbeat'"
        )
        return [row[0] for row in result]


def server_s(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_S


def measured(jobs: int, url: str | None, work: Callable[[], None]) -> Cost:
    pids = backends(url) if url else []
    server, client, wall = server_s(pids), time.process_time(), time.perf_counter()
    work()
    wall = time.perf_counter() - wall
    client = time.process_time() - client
    return Cost(jobs, wall, client, server_s(pids) - server)


def enqueue_all(store: PersistenceAdapter, jobs: int) -> None:
    for start in range(0, jobs, ENQUEUE_BATCH):
        store.write_sync(enqueue, [NewJob(TYPE, {"number": number}) for number in range(start, start + ENQUEUE_BATCH)])


def enqueue_singly(store: PersistenceAdapter, jobs: int) -> None:
    for number in range(jobs):
        store.write_sync(submit, [Submission(type=TYPE, own={"params": {"number": number}})])


def drain(store: PersistenceAdapter, jobs: int, batch: int) -> None:
    slots = Slots(batch, 0)
    settlements: list[Settlement] = []
    done = 0
    while done < jobs:
        vacancy = Vacancy("worker", list(range(batch)), (), [TYPE], uses=slots.uses)
        claims = store.write_sync(settle_and_claim, settlements, vacancy).claims
        slots.note_used(claim.lease.slot for claim in claims)
        done += len(settlements)
        settlements = [
            Settlement(claim.lease.id, claim.lease.worker_id, claim.lease.fence, Outcome.completed())
            for claim in claims
        ]


@contextlib.contextmanager
def stores(engine: str) -> Iterator[tuple[PersistenceAdapter, str | None]]:
    if engine == "sqlite":
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.closing(SqliteStore(f"{folder}/bench.db", terms())) as store,
        ):
            yield store, None
        return
    with PostgresServer(durable=True) as server:
        url = server.create_database()
        with contextlib.closing(PostgresStore(url, terms(), writers=1)) as store:
            yield store, url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), action="append")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--single", type=int, default=2_000)
    parser.add_argument("--batch", type=int, default=200)
    options = parser.parse_args()
    for engine in options.engine or ("sqlite", "postgres"):
        with stores(engine) as (store, url):
            store.write_sync(announce, [AnnouncedType(TYPE)])
            figures: dict[str, object] = {"store": engine, "jobs": options.jobs, "batch": options.batch}
            figures["enqueue"] = measured(options.jobs, url, lambda: enqueue_all(store, options.jobs)).figures()
            figures["drain"] = measured(options.jobs, url, lambda: drain(store, options.jobs, options.batch)).figures()
            single = measured(options.single, url, lambda: enqueue_singly(store, options.single))
            figures["single_enqueue"] = single.figures()
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
