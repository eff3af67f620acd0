"""What tests do with a Store, in words: every act is one verb in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdbeat.domain.clock import Clock, ManualClock, from_iso
from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.group import GroupMode, JobGroup, OnFailure
from holdbeat.domain.ids import IdSource
from holdbeat.domain.job import Job, NewJob
from holdbeat.domain.lease import Claim, LeaseTerms, Settlement
from holdbeat.domain.params import dumps
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.queue.groups import create_group, load_group
from holdbeat.store.reads.event_log import newest_events
from holdbeat.store.reads.jobs import load_job
from holdbeat.store.running.claim import Vacancy, claim
from holdbeat.store.running.settle import Settled, settle
from holdbeat.store.sqlite.store import SqliteStore
from holdbeat.store.transaction import Row, StoreTerms, Transaction

ROOMY = "resources:default=1000,http=1000,gpu=1000,cpu=1000"
"""Limits that are in force but out of reach."""
TYPES = ("noop", "a", "b", "c", "http")
"""The job types that tests use."""


def open_at(
    url: str,
    *,
    clock: Clock | None = None,
    concurrency: str = ROOMY,
    aging_s: float = 0,
    create: bool = True,
    ids: IdSource | None = None,
    direct_burst: int = 0,
) -> PersistenceAdapter:
    """A Store on a file (`sqlite:///…`) or a database (`postgresql://…`)."""
    terms = StoreTerms(ids or IdSource(), ConcurrencyPolicy.parse(concurrency).limits(), aging_s, direct_burst)
    if url.startswith("sqlite:///"):
        return SqliteStore(url.removeprefix("sqlite:///"), terms, clock=clock, create=create)
    return PostgresStore(url, terms, clock=clock, create=create)


class OpenStore:
    """Opens Stores on one database and closes them all."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.url = url
        self.clock = clock
        self._opened: list[PersistenceAdapter] = []
        self._kept: dict[str, PersistenceAdapter] = {}

    def __call__(
        self,
        concurrency: str = ROOMY,
        *,
        aging_s: float = 0,
        create: bool = True,
        clock: Clock | None = None,
        direct_burst: int = 0,
    ) -> PersistenceAdapter:
        store = open_at(
            self.url,
            clock=clock or self.clock,
            concurrency=concurrency,
            aging_s=aging_s,
            create=create,
            direct_burst=direct_burst,
        )
        self._opened.append(store)
        return store

    def kept(self, concurrency: str) -> PersistenceAdapter:
        """The one Store with this policy, opened when first asked for."""
        if concurrency not in self._kept:
            self._kept[concurrency] = self(concurrency)
        return self._kept[concurrency]

    def close(self) -> None:
        for store in self._opened:
            store.close()


# --- into the queue --------------------------------------------------------------------------------------


def enqueue_all(store: PersistenceAdapter, requests: Sequence[NewJob]) -> list[Job]:
    """One batch."""
    return store.write_sync(enqueue, requests).jobs


def enqueue_one(store: PersistenceAdapter, type_: str = "noop", **fields: Any) -> Job:
    """One Job; `fields` are those of NewJob."""
    return enqueue_all(store, [NewJob(type_, **fields)])[0]


def make_group(
    store: PersistenceAdapter, mode: GroupMode, on_failure: OnFailure, members: Sequence[NewJob] | int
) -> tuple[JobGroup, list[Job]]:
    """A group of the given members, or of that many plain ones."""
    jobs = [NewJob("noop") for _ in range(members)] if isinstance(members, int) else members
    return store.write_sync(create_group, None, mode, on_failure, jobs)


# --- work ------------------------------------------------------------------------------------------------


def claim_some(
    store: PersistenceAdapter,
    count: int,
    *,
    worker: str = "w",
    first_slot: int = 0,
    http: int = 0,
    types: Sequence[str] = TYPES,
    resources: Sequence[str] | None = None,
    terms: LeaseTerms | None = None,
) -> list[Claim]:
    """What a worker with `count` free slots (and `http` free ones in the lane for http) gets in one claim."""
    return store.write_sync(
        claim,
        Vacancy(
            worker,
            range(first_slot, first_slot + count),
            range(-1, -1 - http, -1),
            types,
            resources,
            terms or LeaseTerms(),
        ),
    )


def claim_all(store: PersistenceAdapter, *, worker: str = "w", types: Sequence[str] = TYPES) -> list[Claim]:
    """Everything that may run now, in one claim."""
    return claim_some(store, 1000, worker=worker, http=1000, types=types)


def claim_one(store: PersistenceAdapter, *, worker: str = "w", **terms: Any) -> Claim:
    """The next Job; there must be one."""
    claims = claim_some(store, 1, worker=worker, **terms)
    assert claims, "nothing could be claimed"
    return claims[0]


def job_of_claim(taken: Claim) -> Job:
    assert taken.job is not None
    return taken.job


def ids_of(claims: Sequence[Claim]) -> list[str]:
    """The job ids of claims in the order they were given out."""
    return [job_of_claim(taken).id for taken in claims]


def settlement(taken: Claim, outcome: Outcome) -> Settlement:
    """The worker's word about a claim."""
    job = taken.job
    return Settlement(
        taken.lease.id,
        taken.lease.worker_id,
        taken.lease.fence,
        outcome,
        group_id=job.group_id if job else None,
        schedule_id=job.schedule_id if job else None,
    )


def settle_as(store: PersistenceAdapter, taken: Claim, outcome: Outcome) -> Settled:
    return store.write_sync(settle, [settlement(taken, outcome)])[0]


def complete(store: PersistenceAdapter, taken: Claim, result: Any = None) -> Settled:
    return settle_as(store, taken, Outcome.completed(result))


def fail(
    store: PersistenceAdapter, taken: Claim, kind: ErrorKind = ErrorKind.ERROR, error: str = "it broke"
) -> Settled:
    return settle_as(store, taken, Outcome.failed(kind, error))


def skip(store: PersistenceAdapter, taken: Claim, reason: str = "nothing to do") -> Settled:
    return settle_as(store, taken, Outcome.skipped(reason))


def cancel(store: PersistenceAdapter, job_id: str, reason: str | None = None) -> Job:
    return store.write_sync(cancel_job, job_id, reason)


# --- looking ---------------------------------------------------------------------------------------------


def look(store: PersistenceAdapter, job_id: str) -> Job:
    return store.read_sync(load_job, job_id)


def look_at_group(store: PersistenceAdapter, group_id: str) -> tuple[JobGroup, list[Job]]:
    return store.read_sync(load_group, group_id)


def rows(store: PersistenceAdapter, sql: str, /, **params: Any) -> list[Row]:
    """Whatever a SELECT finds."""

    def ask(tx: Transaction) -> list[Row]:
        return tx.rows(sql, **params)

    return store.read_sync(ask)


def change(store: PersistenceAdapter, sql: str, /, **params: Any) -> None:
    """A hand-written change, as an operator with a SQL prompt would make it."""

    def act(tx: Transaction) -> None:
        tx.execute(sql, **params)

    store.write_sync(act)


def events_of(store: PersistenceAdapter, name: str) -> list[Row]:
    """(job_id, run_id, worker_id, data) of every Event of that name, oldest first."""
    everything = store.read_sync(newest_events, None, 1_000_000)
    return [
        (event.job_id, event.run_id, event.worker_id, dumps(event.data) if event.data else None)
        for event in reversed(everything)
        if event.name == name
    ]


def count(store: PersistenceAdapter, table: str, where: str = "1 = 1") -> int:
    return int(rows(store, f"SELECT count(*) FROM {table} WHERE {where}")[0][0])


def instant(store: PersistenceAdapter, value: Any) -> datetime | None:
    """An instant as a row has it, as a datetime."""
    return from_iso(value) if isinstance(value, str) else value
