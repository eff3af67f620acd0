"""Claims beside a snapshot that stays open on PostgreSQL: where they begin in a lane, and what they may not miss."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.ids import IdSource
from holdbeat.domain.job import Hold, NewJob
from holdbeat.domain.lease import Settlement
from holdbeat.domain.run import Outcome
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.running import lane_floor
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.lane_floor import ENTRIES_READ
from holdbeat.store.running.settle_and_claim import SettledAndClaimed, settle_and_claim
from holdbeat.store.transaction import StoreTerms, Transaction


class _Queue:
    """A store on PostgreSQL with a clock that stands still, a worker of one slot, and a snapshot that stays open."""

    def __init__(self, store: PostgresStore, clock: ManualClock, types: list[str], worker: str = "worker") -> None:
        self.store = store
        self._worker = worker
        self.clock = clock
        self.types = types
        self._uses: Counter[int] = Counter()
        self._ended: list[Settlement] = []
        self.next_ready_at: datetime | None = None

    def put(self, count: int, **fields: Any) -> list[str]:
        jobs = [NewJob(self.types[number % len(self.types)], **fields) for number in range(count)]
        return [job.id for job in self.store.write_sync(enqueue, jobs).jobs]

    def claim(self, index: str = "jobs_ready") -> tuple[str | None, int]:
        """The job that the next claim takes, and how many entries of an index it reads."""
        entries = ENTRIES_READ.replace("jobs_ready", index)

        def verb(tx: Transaction) -> tuple[SettledAndClaimed, int]:
            before = tx.rows(f"SELECT {entries}")[0][0]
            vacancy = Vacancy(self._worker, [0], (), self.types, uses=self._uses)
            cycle = settle_and_claim(tx, self._ended, vacancy)
            return cycle, tx.rows(f"SELECT {entries}")[0][0] - before

        cycle, entries_read = self.store.write_sync(verb)
        self._uses.update(claim.lease.slot for claim in cycle.claims)
        self._ended = [Settlement(c.lease.id, self._worker, c.lease.fence, Outcome.completed()) for c in cycle.claims]
        self.next_ready_at = cycle.next_ready_at
        return next((claim.lease.job_id for claim in cycle.claims), None), entries_read

    def claim_when_due(self) -> str | None:
        """Claims now, then at each instant at which a worker with nothing to do would come again, for 5 s."""
        end_at = self.clock.now() + timedelta(seconds=5)
        job_id, _ = self.claim()
        while job_id is None and self.next_ready_at is not None and self.next_ready_at <= end_at:
            self.clock.advance((self.next_ready_at - self.clock.now()).total_seconds())
            job_id, _ = self.claim()
        return job_id

    def run(self, count: int) -> int:
        """Claims so many jobs; the entries that the last claim read."""
        return [self.claim() for _ in range(count)][-1][1]


@pytest.fixture
def queue(
    postgres_url: str, clock: ManualClock, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[_Queue]:
    """Has had 100 jobs that have started, and to step over 30 of them is too many."""
    monkeypatch.setattr(lane_floor, "TOLERATED_DEAD_ENTRIES", 30)
    terms = StoreTerms(IdSource(), ConcurrencyPolicy.parse("unlimited").limits())
    with (
        contextlib.closing(PostgresStore(postgres_url, terms, clock=clock, writers=1)) as store,
        psycopg.connect(postgres_url) as outsider,
    ):
        queue = _Queue(store, clock, getattr(request, "param", ["noop"]))
        queue.put(100)
        outsider.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        outsider.execute("SELECT count(*) FROM jobs")
        queue.run(100)
        yield queue


SEVERAL_LANES = pytest.mark.parametrize("queue", [["noop"], ["noop", "other"]], indirect=True, ids=["one", "two"])
FEW_ENTRIES = 20


@SEVERAL_LANES
@pytest.mark.rule("INV-004")
def test_claims_beside_an_open_snapshot_step_over_few_started_jobs(queue: _Queue) -> None:
    queue.clock.advance(60)
    ready = queue.put(30)
    claimed = [queue.claim() for _ in range(30)]
    assert [job_id for job_id, _ in claimed] == ready
    assert claimed[0][1] > 75, "this one began at the head"
    assert max(entries for _, entries in claimed[2:25]) < FEW_ENTRIES, "as long as there are jobs in all lanes"


@SEVERAL_LANES
@pytest.mark.rule("INV-004")
def test_a_job_of_higher_priority_goes_first_beside_an_open_snapshot(queue: _Queue) -> None:
    queue.put(10)
    queue.run(3)
    (urgent,) = queue.put(1, priority=90)
    job_id, entries_read = queue.claim()
    assert job_id == urgent
    assert entries_read < FEW_ENTRIES


@SEVERAL_LANES
@pytest.mark.rule("INV-004")
def test_a_job_that_becomes_ready_before_the_floor_waits_for_a_claim_from_the_head(queue: _Queue) -> None:
    (early,) = queue.put(1, hold=Hold.GATED)
    ready = queue.put(6)
    queue.run(2)
    queue.store.write_sync(lambda tx: tx.execute("UPDATE jobs SET hold = 0 WHERE id = :id", id=early))
    assert [queue.claim()[0] for _ in range(2)] == ready[2:4], "the floor is behind it"
    queue.clock.advance(5)
    assert [queue.claim()[0] for _ in range(3)] == [early, *ready[4:]]


@SEVERAL_LANES
@pytest.mark.rule("INV-004")
def test_a_worker_comes_again_for_jobs_before_the_floor(queue: _Queue) -> None:
    (early,) = queue.put(1, hold=Hold.GATED)
    queue.put(3)
    queue.run(3)
    queue.store.write_sync(lambda tx: tx.execute("UPDATE jobs SET hold = 0 WHERE id = :id", id=early))
    assert queue.claim()[0] is None
    assert queue.claim_when_due() == early


@pytest.mark.rule("INV-004")
def test_an_empty_queue_is_not_searched_anew_beside_an_open_snapshot(queue: _Queue) -> None:
    queue.claim()
    assert queue.claim()[1] < FEW_ENTRIES, "the search before it stepped over 100 entries"
    (known,) = queue.put(1)
    assert queue.claim()[0] == known, "a job of a lane that the worker knows is found at once"
    queue.types.append("new")
    (new,) = [job.id for job in queue.store.write_sync(enqueue, [NewJob("new")]).jobs]
    assert queue.claim()[0] is None
    assert queue.claim_when_due() == new


@pytest.mark.rule("INV-004")
def test_without_an_open_snapshot_every_claim_begins_at_the_head(postgres_url: str, clock: ManualClock) -> None:
    terms = StoreTerms(IdSource(), ConcurrencyPolicy.parse("unlimited").limits())
    with contextlib.closing(PostgresStore(postgres_url, terms, clock=clock, writers=1)) as store:
        queue = _Queue(store, clock, ["noop"])
        queue.put(lane_floor.TOLERATED_DEAD_ENTRIES + 200)
        queue.run(lane_floor.TOLERATED_DEAD_ENTRIES + 150)
        assert [lane.until for lane in terms.floors.values()] == [None]
        assert terms.known_lanes.until is None


@pytest.mark.rule("CAP-02")
def test_released_leases_are_not_counted_over_and_over_beside_an_open_snapshot(
    postgres_url: str, clock: ManualClock
) -> None:
    terms = StoreTerms(IdSource(), ConcurrencyPolicy.parse("resources:default=1").limits())
    with (
        contextlib.closing(PostgresStore(postgres_url, terms, clock=clock, writers=1)) as store,
        psycopg.connect(postgres_url) as outsider,
    ):
        queue = _Queue(store, clock, ["noop"])
        ready = queue.put(60)
        outsider.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        outsider.execute("SELECT count(*) FROM jobs")
        assert [queue.claim("leases_fence")[0] for _ in range(50)] == ready[:50]
        assert queue.claim("leases_fence")[1] < 5
        other = PostgresStore(postgres_url, terms, clock=clock, writers=1)
        with contextlib.closing(other):
            assert _Queue(other, clock, ["noop"], worker="other").claim()[0] is None, "the one slot is held"


@pytest.mark.rule("CAP-02")
def test_a_lease_with_a_low_fence_is_counted_after_5_s(postgres_url: str, clock: ManualClock) -> None:
    """It came without the lock of a limit that was made meanwhile."""
    terms = StoreTerms(IdSource(), ConcurrencyPolicy.parse("resources:default=2").limits())
    with contextlib.closing(PostgresStore(postgres_url, terms, clock=clock, writers=1)) as store:
        queue = _Queue(store, clock, ["noop"])
        queue.put(40)
        queue.run(30)
        columns = "id, job_id, worker_id, slot, resource, type, fence, acquired_at, heartbeat_at, expires_at"
        values = "'late-' || given, 'x', 'late', given, 'default', 'noop', given, now(), now(), now()"
        with psycopg.connect(postgres_url) as connection:
            connection.execute(f"INSERT INTO leases ({columns}) SELECT {values} FROM generate_series(1, 2) AS given")
        clock.advance(5)
        assert queue.claim()[0] is None
