"""Beside a snapshot that stays open PostgreSQL removes no dead row: what a claim looks at must not grow with them."""

from __future__ import annotations

import contextlib
import json
from collections import Counter

import psycopg
import pytest

from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.ids import IdSource
from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Settlement
from holdbeat.domain.run import Outcome
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.queue.enqueue import enqueue
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.lanes import _LANES
from holdbeat.store.running.settle_and_claim import settle_and_claim
from holdbeat.store.transaction import StoreTerms
from tests.conformance.acts import count

TURNS = 300
FEW = 40
"""Blocks that a statement may look at. With the dead rows of 300 turns a lease took more than 300."""


def _blocks(connection: psycopg.Connection[tuple[object, ...]], sql: str) -> int:
    row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}".encode()).fetchone()
    assert row is not None
    plan = row[0] if isinstance(row[0], list) else json.loads(str(row[0]))
    return int(plan[0]["Plan"]["Shared Hit Blocks"]) + int(plan[0]["Plan"]["Shared Read Blocks"])


@pytest.mark.rule("INV-004", "LEASE-01")
def test_a_snapshot_that_stays_open_makes_neither_leases_nor_lanes_dearer(postgres_url: str) -> None:
    terms = StoreTerms(IdSource(), ConcurrencyPolicy.parse("unlimited").limits())
    uses: Counter[int] = Counter()
    ended: list[Settlement] = []
    with (
        contextlib.closing(PostgresStore(postgres_url, terms, writers=1)) as store,
        psycopg.connect(postgres_url) as outsider,
        psycopg.connect(postgres_url) as looker,
    ):
        store.write_sync(enqueue, [NewJob("noop", {"number": number}) for number in range(TURNS + 50)])
        outsider.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        outsider.execute("SELECT count(*) FROM jobs")
        for _ in range(TURNS):
            claims = store.write_sync(settle_and_claim, ended, Vacancy("worker", [0], (), ["noop"], uses=uses)).claims
            uses.update(claim.lease.slot for claim in claims)
            ended = [Settlement(c.lease.id, "worker", c.lease.fence, Outcome.completed()) for c in claims]
        store.write_sync(settle_and_claim, ended, None)
        columns = "id, job_id, worker_id, slot, resource, type, fence, acquired_at, heartbeat_at, expires_at, use"
        values = "'{}', 'b', 'worker', 0, 'default', 'noop', {fence}, now(), now(), now(), {}"
        insertion = f"INSERT INTO leases ({columns}) VALUES ({values})"
        _blocks(looker, insertion.format("a", uses[0], fence=-1))  # a new session looks at the catalogue, too
        assert _blocks(looker, insertion.format("b", uses[0] + 1, fence=-2)) < FEW
        lanes = _LANES["postgres"].replace("INDEXED BY jobs_ready", "")
        assert _blocks(looker, lanes) < FEW


@pytest.mark.rule("CAP-01", "LEASE-01")
def test_a_slot_whose_claim_got_no_answer_is_refused_to_the_next_claim(store: PersistenceAdapter) -> None:
    """The worker does not know of the first one, so it counts as many uses before the second."""
    store.write_sync(enqueue, [NewJob("noop"), NewJob("noop")])
    vacancy = Vacancy("worker", [3], (), ["noop"], uses={3: 7})
    assert len(store.write_sync(settle_and_claim, [], vacancy).claims) == 1
    with pytest.raises(Exception, match=r"(?i)unique") as refusal:
        store.write_sync(settle_and_claim, [], vacancy)
    assert not isinstance(refusal.value, HoldbeatError), "the worker would not look for claims that it does not know"
    assert count(store, "leases") == 1
