"""Whether a claim stays as quick beside many partitions and many limits: `make bench-limits`.

Each kind has a store with many and one with few partitions or limits, and single claims alternate between all of them.
A claim is flat if it takes as long beside many as beside few. What a kind costs by itself is told as well: how many
times as long it takes beside few as a claim of jobs without partitions under one limit.
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
FEW_LIMITS, MANY_LIMITS = 1, 200
_SLOTS = Limit("api", resource="api", slots=1000)
KINDS: dict[str, Limit] = {
    "partitions": _SLOTS,
    "per partition": Limit("api", resource="api", slots=1, per_partition=True),
    "fair": Limit("api", resource="api", slots=1000, fair=True),
    "fair per partition": Limit("api", resource="api", slots=1, per_partition=True, fair=True),
}


def _others(count: int) -> tuple[Limit, ...]:
    """Limits that cover none of the jobs."""
    return tuple(Limit(f"r{number}", resource=f"r{number}", slots=1) for number in range(count))


def measure(bench: Any, partitions: int, claims: int) -> dict[str, Any]:
    """How many times as long a claim takes beside many partitions and limits as beside few, and as a plain one."""
    fills: dict[tuple[str, str], tuple[tuple[Limit, ...], int]] = {
        ("limits", "few"): ((_SLOTS,), 0),
        ("limits", "many"): ((_SLOTS, *_others(MANY_LIMITS - FEW_LIMITS)), 0),
    }
    for kind, limit in KINDS.items():
        fills[kind, "few"] = ((limit,), FEW)
        fills[kind, "many"] = ((limit,), partitions)
    times: dict[tuple[str, str], list[float]] = {key: [] for key in fills}
    progress(f"{bench.name}: claims beside {partitions:,} partitions, and {MANY_LIMITS} limits")
    bench.clear()
    with ExitStack() as stack:
        stores = {key: stack.enter_context(bench.store(bench.another_place())) for key in fills}
        for key, (limits, count) in fills.items():
            _fill(stores[key], limits, count)
        for number in range(claims + WARM_UP):
            for key, store in stores.items():
                elapsed_s = _claim(store)
                if number >= WARM_UP:
                    times[key].append(elapsed_s)
    medians = {key: statistics.median(values) for key, values in times.items()}
    kinds = ["limits", *KINDS]
    for kind in kinds:
        progress(f"  {kind}: few {medians[kind, 'few'] * 1e3:.2f} ms, many {medians[kind, 'many'] * 1e3:.2f} ms")
    bench.clear()
    plain = medians["limits", "few"]
    return {
        "limits": {kind: round(medians[kind, "many"] / medians[kind, "few"], 2) for kind in kinds},
        "limits_cost": {kind: round(medians[kind, "few"] / plain, 2) for kind in KINDS},
    }


def misses(figures: dict[str, Any]) -> list[str]:
    """What is slower than it should be."""
    return [
        f"a claim with many {kind} takes {ratio} times as long as with few, not {MOST}"
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
