"""Whether a claim stays as quick beside many partitions and many limits: `make bench-limits`.

Each kind has a store of its own, and single claims alternate between them. The measure is a claim beside 1,000 jobs
without partitions under one limit.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import Any

from benchmarks.timing import progress, stopwatch
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Settlement
from holdbeat.domain.limit import Limit
from holdbeat.domain.run import Outcome
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.changes import declare_limits
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.running.settle import settle

WARM_UP = 10
MOST = 1.5
"""So many times as long a claim may take."""
FEW = 1_000
_PLAIN = Limit("api", resource="api", slots=1000)
KINDS: dict[str, tuple[bool, tuple[Limit, ...]]] = {
    "few": (False, (_PLAIN,)),
    "partitions": (True, (_PLAIN,)),
    "per partition": (True, (Limit("api", resource="api", slots=1, per_partition=True),)),
    "fair": (True, (Limit("api", resource="api", slots=1000, fair=True),)),
    "fair per partition": (True, (Limit("api", resource="api", slots=1, per_partition=True, fair=True),)),
    "200 limits": (False, (_PLAIN, *(Limit(f"r{n}", resource=f"r{n}", slots=1) for n in range(200)))),
}


def measure(bench: Any, partitions: int, claims: int) -> dict[str, Any]:
    """How many times as long a claim takes as beside few jobs without partitions."""
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    progress(f"{bench.name}: claims beside {partitions:,} partitions, and 200 limits")
    bench.clear()
    with ExitStack() as stack:
        stores = {kind: stack.enter_context(bench.store(bench.another_place())) for kind in KINDS}
        for kind, (is_partitioned, limits) in KINDS.items():
            _fill(stores[kind], limits, partitions if is_partitioned else 0)
        for number in range(claims + WARM_UP):
            for kind, store in stores.items():
                elapsed_s = _claim(store)
                if number >= WARM_UP:
                    times[kind].append(elapsed_s)
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    for kind, median in medians.items():
        progress(f"  {kind}: {median * 1e3:.2f} ms")
    bench.clear()
    return {"limits": {kind: round(medians[kind] / medians["few"], 2) for kind in KINDS if kind != "few"}}


def misses(figures: dict[str, Any]) -> list[str]:
    """What is slower than it should be."""
    return [
        f"a claim with {kind} takes {ratio} times as long, not {MOST}"
        for kind, ratio in figures["limits"].items()
        if ratio > MOST
    ]


def _fill(store: PersistenceAdapter, limits: tuple[Limit, ...], partitions: int) -> None:
    store.write_sync(declare_limits, (), limits, by="bench")
    jobs = [
        NewJob("noop", resource="api", partition=f"p{n:06}" if partitions else "") for n in range(partitions or FEW)
    ]
    for start in range(0, len(jobs), 10_000):
        store.write_sync(enqueue, jobs[start : start + 10_000])


def _claim(store: PersistenceAdapter) -> float:
    with stopwatch() as watch:
        (taken,) = store.write_sync(claim, Vacancy("worker", [0], (), ["noop"]))
    ended = Settlement(taken.lease.id, "worker", taken.lease.fence, Outcome.completed())
    store.write_sync(settle, [ended])
    return watch.elapsed_s
