"""Plans that PostgreSQL made while the tables were nearly empty, and keeps as they grow."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest

from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.ids import IdSource
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Settlement
from holdbeat.domain.run import Outcome
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.settle_and_claim import settle_and_claim
from holdbeat.store.transaction import StoreTerms, Transaction

CYCLES = 12
"""After the fifth the server may keep a plan."""


class _Worker:
    def __init__(self, store: PostgresStore, slots: int) -> None:
        self._store = store
        self._slots = list(range(slots))
        self._uses: Counter[int] = Counter()
        self._ended: list[Settlement] = []

    def cycle(self) -> tuple[int, int]:
        """How many claims there were, and how many rows of `jobs` were read in the order of the table for them."""

        def verb(tx: Transaction) -> tuple[int, int]:
            before = _rows_read(tx, "jobs")
            vacancy = Vacancy("worker", self._slots, (), ["noop"], uses=self._uses)
            claims = settle_and_claim(tx, self._ended, vacancy).claims
            self._ended = [Settlement(c.lease.id, "worker", c.lease.fence, Outcome.completed()) for c in claims]
            self._uses.update(claim.lease.slot for claim in claims)
            return len(claims), _rows_read(tx, "jobs") - before

        return self._store.write_sync(verb)


def _rows_read(tx: Transaction, relation: str) -> int:
    """Of a table by sequential scans, or of an index by all scans, in this transaction and shortly before."""
    return int(tx.rows("SELECT pg_stat_get_xact_tuples_returned(CAST(:relation AS regclass))", relation=relation)[0][0])


@pytest.mark.rule("INV-004")
@pytest.mark.parametrize("slots", [1, 4])
def test_a_cycle_reads_no_table_whole_after_the_store_has_grown(postgres_url: str, slots: int) -> None:
    terms = StoreTerms(IdSource(), ConcurrencyPolicy.parse("unlimited").limits())
    with contextlib.closing(PostgresStore(postgres_url, terms, writers=1)) as store:
        worker = _Worker(store, slots)
        for _ in range(CYCLES):
            store.write_sync(enqueue, [NewJob("noop") for _ in range(slots)])
            worker.cycle()
        store.write_sync(enqueue, [NewJob("noop") for _ in range(2000)])
        assert [worker.cycle() for _ in range(CYCLES)] == [(slots, 0)] * CYCLES


@pytest.mark.rule("INV-004")
def test_leases_are_released_by_their_ids_however_many_their_worker_had(postgres_url: str) -> None:
    terms = StoreTerms(IdSource(), ConcurrencyPolicy.parse("unlimited").limits())
    with contextlib.closing(PostgresStore(postgres_url, terms, writers=1)) as store:
        worker = _Worker(store, 1)
        store.write_sync(enqueue, [NewJob("noop") for _ in range(2 * CYCLES)])
        for _ in range(CYCLES):
            worker.cycle()

        def read_by_worker(tx: Transaction) -> int:
            before = _rows_read(tx, "leases_worker_id_use_slot_key")
            settle_and_claim(tx, worker._ended, None)
            return _rows_read(tx, "leases_worker_id_use_slot_key") - before

        assert store.write_sync(read_by_worker) == 0
