"""Many real processes on one store at once: what each of them does, and how to send them off together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdbeat.domain.job import NewJob
from holdbeat.domain.run import Outcome
from holdbeat.store.limits.changes import set_limit
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.running.settle import settle
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import ids_of, open_at, rows, settlement
from tests.process_context import CONTEXT

T = TypeVar("T")
PROCESSES = 8


class Crew:
    """Eight processes that are up and wait for something to do."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(PROCESSES, mp_context=CONTEXT)
        list(self._pool.map(time.sleep, [0.1] * PROCESSES))

    def all_at_once(self, act: Callable[..., T], *arguments: Any, processes: int = PROCESSES) -> list[T]:
        """Runs `act(number, start, *arguments)` in as many processes; `start` is an instant that all wait for."""
        start = time.time() + 0.3
        futures = [self._pool.submit(act, number, start, *arguments) for number in range(processes)]
        return [future.result(timeout=100) for future in futures]

    def close(self) -> None:
        self._pool.shutdown()


def wait_for(start: float) -> None:
    time.sleep(max(0.0, start - time.time()))


@dataclass
class Shift:
    """What one process did."""

    claimed: list[str] = field(default_factory=list)
    verdicts: set[str] = field(default_factory=set)
    most_leases: int = 0


def work_until_empty(number: int, start: float, url: str, concurrency: str, slots: int, observe: bool = False) -> Shift:
    """Claims and completes until nothing is left; `observe` looks at the live leases in between."""
    store = open_at(url, concurrency=concurrency)
    shift = Shift()
    wait_for(start)
    idle = 0
    while idle < 3:
        claims = store.write_sync(claim, Vacancy(f"w{number}", range(slots), (), ["a", "b", "noop"]))
        if observe:
            seen = rows(store, "SELECT count(*) FROM leases")[0][0]
            shift.most_leases = max(shift.most_leases, seen)
        if not claims:
            queued = rows(store, "SELECT 1 FROM jobs WHERE status = 'QUEUED' LIMIT 1")
            idle = 0 if queued else idle + 1
            continue
        shift.claimed += ids_of(claims)
        shift.verdicts |= set(store.write_sync(settle, [settlement(item, Outcome.completed()) for item in claims]))
    store.close()
    return shift


def work_while_limits_change(number: int, start: float, url: str, slots: int) -> Shift:
    """Works as `work_until_empty` does, each process with settings of its own; the first keeps changing the limit."""
    store = open_at(url, concurrency=f"resources:default={number + 1}")
    shift = Shift()
    wait_for(start)
    turn = idle = 0
    while idle < 3:
        turn += 1
        if number == 0:
            store.write_sync(set_limit, "default", {"slots": (1, 3, 1, 2)[turn % 4]})
        claims = store.write_sync(claim, Vacancy(f"w{number}", range(slots), (), ["a"]))
        if not claims:
            idle = 0 if rows(store, "SELECT 1 FROM jobs WHERE status = 'QUEUED' LIMIT 1") else idle + 1
            continue
        shift.claimed += ids_of(claims)
        shift.verdicts |= set(store.write_sync(settle, [settlement(taken, Outcome.completed()) for taken in claims]))
    store.close()
    return shift


@dataclass
class Start:
    type: str
    partition: str
    leased_at: float
    """By the store's clock."""
    began_at: float
    """By the clock of the process, when its handler could begin."""


def start_until_empty(number: int, start: float, url: str, types: Sequence[str]) -> list[Start]:
    """Claims and completes until nothing is left, and tells what it started."""
    store = open_at(url, concurrency="unlimited")
    starts = []
    wait_for(start)
    while rows(store, "SELECT 1 FROM jobs WHERE status = 'QUEUED' LIMIT 1"):
        claims = store.write_sync(claim, Vacancy(f"w{number}", range(4), (), types))
        began_at = time.time()
        starts += [
            Start(taken.lease.type, taken.job.partition, taken.lease.acquired_at.timestamp(), began_at)
            for taken in claims
            if taken.job
        ]
        if claims:
            store.write_sync(settle, [settlement(taken, Outcome.completed()) for taken in claims])
    store.close()
    return starts


@dataclass
class Watched:
    """What one process did, and what it saw of the leases of all."""

    claimed: list[str] = field(default_factory=list)
    most_weight: int = 0
    most_of_a_partition: int = 0
    doubled: list[list[int]] = field(default_factory=list)
    """Slot numbers of a moment in which one was held twice."""
    together: int = 0


def work_and_watch(number: int, start: float, url: str) -> Watched:
    """Claims, looks at all leases in one statement, and completes, until nothing is left."""
    store = open_at(url, concurrency="unlimited")
    watched = Watched()
    wait_for(start)
    idle = 0
    while idle < 3:
        claims = store.write_sync(claim, Vacancy(f"w{number}", range(2), (), ["a", "b"]))
        leases = rows(store, "SELECT weight, partition, number, numbers FROM leases")
        watched.together = max(watched.together, len(leases))
        watched.most_weight = max(watched.most_weight, sum(lease[0] for lease in leases))
        partitions = Counter(lease[1] for lease in leases)
        watched.most_of_a_partition = max([watched.most_of_a_partition, *partitions.values()])
        held = [int(text) for lease in leases for text in (lease[3] or str(lease[2])).split(",")]
        if len(set(held)) != len(held):
            watched.doubled.append(held)
        if not claims:
            idle = 0 if rows(store, "SELECT 1 FROM jobs WHERE status = 'QUEUED' LIMIT 1") else idle + 1
            continue
        watched.claimed += ids_of(claims)
        store.write_sync(settle, [settlement(taken, Outcome.completed()) for taken in claims])
    store.close()
    return watched


def enqueue_many(number: int, start: float, url: str, amount: int) -> list[str]:
    """Puts jobs into the queue one by one."""
    store = open_at(url)
    wait_for(start)
    ids = [store.write_sync(enqueue, [NewJob("a", {"by": number})]).jobs[0].id for _ in range(amount)]
    store.close()
    return ids


def open_and_close(number: int, start: float, url: str) -> int:
    """Opens the store, which migrates it, and counts the migrations it then has."""
    wait_for(start)
    store = open_at(url)
    records: int = rows(store, "SELECT count(*) FROM schema_migrations")[0][0]
    store.close()
    return records


def draw_fences(number: int, start: float, url: str, draws: int, amount: int) -> list[int]:
    """Reserves fences again and again; the first of each row that it got."""
    store = open_at(url)
    wait_for(start)

    def draw(tx: Transaction) -> int:
        return tx.next_fences(amount)

    firsts = [store.write_sync(draw) for _ in range(draws)]
    store.close()
    return firsts


def flatten(lists: Sequence[Sequence[T]]) -> list[T]:
    return [item for entry in lists for item in entry]
