"""What a snapshot that stays open costs claims on PostgreSQL: `make bench-horizon`.

A dump or an analyst keeps PostgreSQL from removing dead rows, and every claim leaves some. Two databases get the same
cycles in alternation, one of them beside a transaction that holds a snapshot from the beginning.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections import Counter

import psycopg

from benchmarks.hot_path import TYPE, backends, server_s
from benchmarks.lives import terms
from benchmarks.timing import progress
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Settlement
from holdbeat.domain.run import Outcome
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.settle_and_claim import settle_and_claim
from tests.postgres import PostgresServer

PARTS = 10
MOST = 1.5


class Worker:
    """Turns of one worker on one database, and what they cost the server."""

    def __init__(self, url: str, slots: int) -> None:
        self.url = url
        self.store = PostgresStore(url, terms(), writers=1)
        self._slots = slots
        self._uses: Counter[int] = Counter()
        self._ended: list[Settlement] = []
        self._pids: list[int] = []

    def run(self, cycles: int) -> tuple[float, float]:
        """Milliseconds by the clock and of the server's processor for each cycle."""
        for _ in range(cycles):
            self.store.write_sync(enqueue, [NewJob(TYPE, {"number": number}) for number in range(self._slots)])
        self._pids = self._pids or backends(self.url)
        cpu, began = server_s(self._pids), time.monotonic()
        for _ in range(cycles):
            vacancy = Vacancy("worker", list(range(self._slots)), (), [TYPE], uses=self._uses)
            claims = self.store.write_sync(settle_and_claim, self._ended, vacancy).claims
            self._uses.update(claim.lease.slot for claim in claims)
            self._ended = [
                Settlement(claim.lease.id, claim.lease.worker_id, claim.lease.fence, Outcome.completed())
                for claim in claims
            ]
        wall_s, cpu_s = time.monotonic() - began, server_s(self._pids) - cpu
        return 1000 * wall_s / cycles, 1000 * cpu_s / cycles


def measure(claims: int, slots: int) -> list[dict[str, float]]:
    """The cost of a cycle beside an open snapshot and without one, after each tenth of the claims."""
    cycles = max(1, claims // slots // PARTS)
    parts = []
    with PostgresServer(durable=True) as server, contextlib.ExitStack() as stack:
        plain, held = (Worker(server.create_database(), slots) for _ in range(2))
        for worker in (plain, held):
            stack.callback(worker.store.close)
            worker.run(1)
        outsider = stack.enter_context(psycopg.connect(held.url))
        outsider.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        outsider.execute("SELECT count(*) FROM jobs")
        for part in range(1, PARTS + 1):
            without, beside = plain.run(cycles), held.run(cycles)
            figures = {
                "claims": part * cycles * slots,
                "plain_ms": round(without[0], 2),
                "held_ms": round(beside[0], 2),
                "ratio": round(beside[0] / without[0], 2),
                "cpu_ratio": round(beside[1] / without[1], 2) if without[1] else 0.0,
            }
            progress(json.dumps(figures))
            parts.append(figures)
    return parts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--claims", type=int, default=20_000)
    parser.add_argument("--slots", type=int, nargs="*", default=[128, 1], help="jobs of each cycle")
    options = parser.parse_args()
    worst = 0.0
    for slots in options.slots:
        parts = measure(options.claims, slots)
        # By the processor's time: a second of somebody else's work on the disk would spoil any ratio of clocks.
        last = sorted(part["cpu_ratio"] for part in parts[-3:])[1]
        print(json.dumps({"claims": parts[-1]["claims"], "slots": slots, "cpu_ratio": last, "most": MOST}), flush=True)
        worst = max(worst, last)
    return 0 if worst <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
