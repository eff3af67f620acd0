"""A step that is alone: one statement of its event loop keeps it once, under its lease, whatever the line does."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from holdbeat.domain.job import NewJob
from holdbeat.domain.lease import Claim
from holdbeat.store.durable.steps import LeaseGone, StepEntry, keep_step, kept_values
from holdbeat.store.postgres.pipeline import StatementPipeline, _compiled
from holdbeat.store.postgres.store import PostgresStore
from holdbeat.store.postgres.transaction import bound
from tests.conformance.acts import claim_one, claim_some, complete, enqueue_all, enqueue_one, job_of_claim, open_at
from tests.conformance.fault_proxy import CUTS, Cut, FaultProxy
from tests.waiting import eventually

pytestmark = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


@pytest.fixture
def store(far_store: PostgresStore) -> PostgresStore:
    return far_store


def entry(taken: Claim, name: str, value: str) -> StepEntry:
    lease, chain_id = taken.lease, job_of_claim(taken).chain_id
    return StepEntry(lease.id, lease.worker_id, lease.fence, chain_id, name, value, lease.acquired_at, 0.25)


async def connect_loop(store: PostgresStore, taken: Claim, name: str = "first") -> None:
    """The first step goes to a writer, and has the connection for the next ones made."""
    await store.write(keep_step, entry(taken, name, "0"))
    await asyncio.to_thread(eventually, lambda: _is_connected(store) or None)


def _is_connected(store: PostgresStore) -> bool:
    link = store._single_jobs.loop_link
    return link._connection is not None and not link._connection.closed and not link._in_use.locked()


@pytest.mark.rule("STEP-01", "STEP-03", "LEASE-03")
def test_it_is_committed_without_a_thread_and_refused_without_a_lease(
    store: PostgresStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_one(store)
    taken = claim_one(store)
    other = open_at(store_url)
    chain_id = job_of_claim(taken).chain_id

    async def program() -> None:
        await connect_loop(store, taken)
        with monkeypatch.context() as patch:
            patch.setattr(store._writing, "put", lambda work: pytest.fail("a thread was asked"))
            assert await store.write(keep_step, entry(taken, "crawl", "1")) == "1"
        assert other.read_sync(kept_values, chain_id) == {"first": "0", "crawl": "1"}
        assert await store.write(keep_step, entry(taken, "crawl", "2")) == "1"
        complete(other, taken)
        for name in ("crawl", "late"):
            with pytest.raises(LeaseGone):
                await store.write(keep_step, entry(taken, name, "3"))

    asyncio.run(program())
    assert other.read_sync(kept_values, chain_id) == {"first": "0", "crawl": "1"}
    other.close()


@pytest.mark.rule("STEP-01", "STEP-03")
@pytest.mark.parametrize("cut", CUTS)
def test_one_whose_answer_is_lost_is_kept_once(
    store: PostgresStore, store_url: str, proxy: FaultProxy, cut: Cut
) -> None:
    enqueue_one(store)
    taken = claim_one(store)

    async def program() -> list[str]:
        values = []
        for number in range(3):
            await connect_loop(store, taken, f"first {number}")
            proxy.arm(cut, b"the value" if cut == "before the commit arrives" else b"INSERT 0 1\0")
            values.append(await store.write(keep_step, entry(taken, f"crawl {number}", f'"the value {number}"')))
        return values

    values = asyncio.run(program())
    assert proxy.cuts == 3
    assert values == [f'"the value {number}"' for number in range(3)]
    other = open_at(store_url)
    kept = other.read_sync(kept_values, job_of_claim(taken).chain_id)
    assert [kept[f"crawl {number}"] for number in range(3)] == values
    other.close()


@pytest.mark.rule("STEP-01", "STEP-03")
def test_one_that_cannot_be_sent_is_left_to_a_writer_and_ends_once(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_one(store)
    taken = claim_one(store)

    flush = StatementPipeline.flush

    def cannot(pipeline: StatementPipeline) -> bool:
        monkeypatch.setattr(StatementPipeline, "flush", flush)
        raise psycopg.OperationalError("the line is cut")

    async def program() -> list[str]:
        await connect_loop(store, taken)
        monkeypatch.setattr(StatementPipeline, "flush", cannot)
        values = [await store.write(keep_step, entry(taken, "crawl", "1"))]
        assert store._inserts is not None and store._inserts.is_alone
        await connect_loop(store, taken, "second")
        return [*values, await store.write(keep_step, entry(taken, "embed", "2"))]

    assert asyncio.run(program()) == ["1", "2"]
    assert store._inserts is not None and store._inserts.is_alone


@pytest.mark.rule("STEP-07")
def test_a_batch_seeks_each_lease_by_its_id_or_fence_in_the_plan_that_the_server_keeps(store_url: str) -> None:
    """It makes that plan for any batch, and takes the leases of one worker to be few."""
    store = open_at(store_url)
    enqueue_all(store, [NewJob("noop") for _ in range(40)])
    entries = [entry(taken, f"crawl {number}", "1") for number, taken in enumerate(claim_some(store, 40))]
    sql, params = bound(keep_step.sql, {"entries": keep_step.rows(entries), "now": entries[0].started_at})
    text, names = _compiled(sql)
    values = ", ".join(f"'{params[name]}'" for name in names)
    with store.connection() as connection:
        connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        connection.execute(b"PREPARE keep AS " + text)
        plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN (ANALYZE) EXECUTE keep({values})".encode()))
        connection.execute("DEALLOCATE keep")
    store.close()
    assert ("leases_pkey" in plan or "leases_fence" in plan) and "Rows Removed by" not in plan, plan
    assert "Tuples Inserted: 40" in plan, plan


@pytest.mark.rule("STEP-07")
def test_steps_go_past_those_that_wait_for_a_lock(store: PostgresStore, store_url: str) -> None:
    enqueue_all(store, [NewJob("noop") for _ in range(4)])
    claims = claim_some(store, 4)
    other = open_at(store_url)

    async def program() -> None:
        await connect_loop(store, claims[0])
        with other.connection() as connection:
            ids = [taken.lease.id for taken in claims[:2]]
            connection.execute("SELECT 1 FROM leases WHERE id = ANY(%s) FOR UPDATE", [ids])
            stuck = [asyncio.ensure_future(store.write(keep_step, entry(taken, "stuck", "1"))) for taken in claims[:2]]
            for _ in range(3):
                await asyncio.sleep(0)
            free = [store.write(keep_step, entry(taken, "free", "1")) for taken in claims[2:]]
            assert await asyncio.gather(*free) == ["1", "1"]
            assert not any(step.done() for step in stuck)
        assert await asyncio.gather(*stuck) == ["1", "1"]

    asyncio.run(program())
    other.close()
