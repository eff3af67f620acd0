"""Jobs through their whole life by the Store's own verbs: enqueue, claim, settle."""

from __future__ import annotations

import asyncio
from functools import partial

from benchmarks.timing import stopwatch
from holdbeat.bench.bare import in_parallel
from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.ids import IdSource
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Settlement
from holdbeat.domain.run import Outcome
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.running.settle import Settled, settle
from holdbeat.store.transaction import StoreTerms


def terms() -> StoreTerms:
    """A deployment without limits, as in the comparisons beside it."""
    return StoreTerms(IdSource(), ConcurrencyPolicy.parse("unlimited").limits())


def live(store: PersistenceAdapter, jobs: int, batch: int, name: str) -> None:
    """One caller: fills the queue with jobs of a type of its own, then claims and settles them."""
    for start in range(0, jobs, batch):
        store.write_sync(enqueue, [NewJob(name, {"number": number}) for number in range(start, start + batch)])
    vacancy = Vacancy(f"worker-{name}", list(range(batch)), (), [name])
    done = 0
    while done < jobs:
        claims = store.write_sync(claim, vacancy)
        verdicts = store.write_sync(
            settle,
            [
                Settlement(c.lease.id, vacancy.worker_id, c.lease.fence, Outcome.completed({"fence": c.lease.fence}))
                for c in claims
            ],
        )
        if not claims or any(verdict is not Settled.ACCEPTED for verdict in verdicts):
            raise RuntimeError("the store did not hand out or take back what it should have")
        done += len(claims)


def life(store: PersistenceAdapter, jobs: int, batch: int, callers: int) -> float:
    """Lives per second with that many callers at the same time."""
    share = jobs // callers // batch * batch
    with stopwatch() as watch:
        if callers == 1:
            live(store, share, batch, "noop-0")
        else:
            in_parallel([partial(live, store, share, batch, f"noop-{number}") for number in range(callers)])
    return share * callers / watch.elapsed_s


def enqueue_concurrently(store: PersistenceAdapter, jobs: int, callers: int = 64) -> float:
    """Jobs per second when each of many callers enqueues one at a time and waits until it is on disk."""

    async def caller(count: int) -> None:
        for number in range(count):
            await store.write(enqueue, [NewJob("noop", {"number": number})])

    async def everyone() -> None:
        await asyncio.gather(*(caller(jobs // callers) for _ in range(callers)))

    with stopwatch() as watch:
        asyncio.run(everyone())
    return jobs // callers * callers / watch.elapsed_s
