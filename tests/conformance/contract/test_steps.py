"""Steps: kept under the lease, the first of a name stays, and they go with their chain."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, NotFound
from holdbeat.domain.job import NewJob, RetryPolicy
from holdbeat.domain.lease import Claim
from holdbeat.domain.steps import numbered
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.steps import LeaseGone, StepEntry, keep_step, kept_values, list_steps
from holdbeat.store.jobs.manual_retry import rerun_job, retry_job
from holdbeat.store.reads.chains import last_step
from holdbeat.store.recovery.prune import prune
from tests.conformance.acts import (
    cancel,
    change,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_all,
    enqueue_one,
    fail,
    job_of_claim,
    look,
)
from tests.conformance.races import together

AT_ONCE = RetryPolicy(max_attempts=3, base_delay_s=0)


def entry(taken: Claim, name: str, value: str = "1") -> StepEntry:
    lease = taken.lease
    return StepEntry(
        lease.id, lease.worker_id, lease.fence, job_of_claim(taken).chain_id, name, value, lease.acquired_at, 0.25
    )


def keep(store: PersistenceAdapter, taken: Claim, name: str, value: str = "1") -> str:
    return store.write_sync(keep_step, entry(taken, name, value))


@pytest.mark.rule("STEP-01")
def test_a_kept_step_is_known_to_the_automatic_retry_and_to_the_manual_one(store: PersistenceAdapter) -> None:
    first = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=1, base_delay_s=0))
    taken = claim_one(store)
    assert keep(store, taken, "crawl", '{"pages":3}') == '{"pages":3}'
    fail(store, taken)
    again = claim_one(store)
    assert job_of_claim(again).chain_id == first.id
    assert store.read_sync(kept_values, first.id) == {"crawl": '{"pages":3}'}
    fail(store, again)
    manual = store.write_sync(retry_job, job_of_claim(again).id)
    assert (manual.root_id, look(store, manual.id).chain_id) == (first.id, first.id)


@pytest.mark.rule("STEP-02", "STEP-05", "STEP-06")
def test_steps_of_one_millisecond_are_in_the_order_of_their_runs_and_of_the_uses_of_a_name(
    store: PersistenceAdapter,
) -> None:
    job = enqueue_one(store, retry_policy=AT_ONCE)
    pages = [numbered("page", number) for number in range(1, 13)]
    taken = claim_one(store)
    for name in [*pages, "sum"]:
        keep(store, taken, name)
    fail(store, taken)
    taken = claim_one(store)
    assert taken.lease.acquired_at == job.created_at, "the clock stands"
    keep(store, taken, "add")
    names = [step.name for step in store.read_sync(list_steps, job.id)]
    assert [name for name in names if name.startswith("page")] == pages
    assert names[-1] == "add" == store.read_sync(last_step, job.id)[0]  # type: ignore[index]
    fail(store, taken)
    complete(store, claim_one(store))
    rerun = store.write_sync(rerun_job, job.id, "page#2")
    assert set(store.read_sync(kept_values, rerun.id)) - {"sum"} == {"page"}


@pytest.mark.rule("STEP-03")
def test_the_first_value_of_a_name_stays_and_later_ones_get_it(store: PersistenceAdapter) -> None:
    job = enqueue_one(store, retry_policy=AT_ONCE)
    taken = claim_one(store)
    assert keep(store, taken, "crawl", "1") == "1"
    assert keep(store, taken, "crawl", "2") == "1"
    fail(store, taken)
    assert keep(store, claim_one(store), "crawl", "3") == "1"
    assert store.read_sync(kept_values, job.id) == {"crawl": "1"}


@pytest.mark.rule("STEP-03", "LEASE-03")
def test_a_step_of_a_worker_that_lost_its_lease_is_refused_and_leaves_nothing(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    taken = claim_one(store)
    change(store, "UPDATE leases SET worker_id = 'another' WHERE id = :id", id=taken.lease.id)
    with pytest.raises(LeaseGone, match="'crawl' was refused"):
        keep(store, taken, "crawl")
    change(store, "UPDATE leases SET worker_id = 'w', fence = fence + 1 WHERE id = :id", id=taken.lease.id)
    with pytest.raises(LeaseGone):
        keep(store, taken, "crawl")
    assert store.read_sync(kept_values, job.id) == {}


@pytest.mark.rule("STEP-03", "LEASE-03")
def test_a_step_that_was_kept_before_is_still_refused_to_a_late_worker(store: PersistenceAdapter) -> None:
    enqueue_one(store)
    taken = claim_one(store)
    keep(store, taken, "crawl")
    complete(store, taken)
    with pytest.raises(LeaseGone):
        keep(store, taken, "crawl")


@pytest.mark.rule("STEP-07", "STEP-03")
def test_steps_of_many_runs_are_kept_at_once_and_a_late_one_refuses_no_other(store: PersistenceAdapter) -> None:
    jobs = enqueue_all(store, [NewJob("noop") for _ in range(20)])
    claims = claim_some(store, 20)
    complete(store, claims[7])
    results = together([lambda taken=taken: keep(store, taken, "crawl", f'"{taken.lease.id}"') for taken in claims])  # type: ignore[misc]
    assert isinstance(results[7], LeaseGone)
    assert [result for index, result in enumerate(results) if index != 7] == [
        f'"{taken.lease.id}"' for index, taken in enumerate(claims) if index != 7
    ]
    assert count(store, "steps") == len(jobs) - 1


@pytest.mark.rule("STEP-07", "STEP-03", "LEASE-03")
def test_steps_that_tasks_keep_at_once_are_answered_each_on_its_own(store: PersistenceAdapter) -> None:
    """Among them are a late one, one of a name that is kept, two of one name, and one whose caller has gone away."""
    enqueue_all(store, [NewJob("noop") for _ in range(70)])
    claims = claim_some(store, 70)
    complete(store, claims[7])
    keep(store, claims[8], "crawl", '"earlier"')
    entries = [entry(taken, "crawl", f'"{number}"') for number, taken in enumerate(claims)]
    entries += [entry(claims[9], "crawl", '"second"'), entry(claims[10], "gone")]

    async def program() -> list[str | BaseException]:
        tasks = [asyncio.ensure_future(store.write(keep_step, each)) for each in entries]
        await asyncio.sleep(0)
        tasks[-1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(program())
    assert isinstance(results[7], LeaseGone) and isinstance(results[-1], asyncio.CancelledError)
    assert results[8] == '"earlier"'
    assert results[9] == results[70] and results[9] in ('"9"', '"second"')
    assert all(results[number] == f'"{number}"' for number in range(70) if number not in (7, 8, 9))
    for number, taken in enumerate(claims):
        kept = store.read_sync(kept_values, job_of_claim(taken).chain_id)
        assert kept.get("crawl") == (None if number == 7 else results[number])


@pytest.mark.rule("STEP-04", "STEP-07")
def test_a_step_that_the_store_cannot_hold_fails_alone(store: PersistenceAdapter) -> None:
    enqueue_all(store, [NewJob("noop") for _ in range(8)])
    claims = claim_some(store, 8)
    calls = [entry(taken, "crawl", f"{number}") for number, taken in enumerate(claims)]
    calls[3] = calls[3]._replace(duration_s=None)  # type: ignore[arg-type]

    async def program() -> list[str | BaseException]:
        return await asyncio.gather(*[store.write(keep_step, call) for call in calls], return_exceptions=True)

    results = asyncio.run(program())
    assert isinstance(results[3], Exception)
    assert [results[number] for number in range(8) if number != 3] == [str(n) for n in range(8) if n != 3]
    assert count(store, "steps") == 7


@pytest.mark.rule("STEP-05")
def test_steps_are_listed_in_the_order_in_which_they_were_kept(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store)
    taken = claim_one(store)
    for name, value in (("z", '"ä"'), ("a", "[1,2]")):
        keep(store, taken, name, value)
        clock.advance(1)
    steps = store.read_sync(list_steps, job.id)
    assert [(step.name, step.value, step.size, step.duration_s) for step in steps] == [
        ("z", "ä", 4, 0.25),
        ("a", [1, 2], 5, 0.25),
    ]
    assert {step.run_id for step in steps} == {taken.lease.id}


@pytest.mark.rule("STEP-07", "QUE-07")
def test_steps_go_with_their_chain(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store, retry_policy=AT_ONCE)
    taken = claim_one(store)
    keep(store, taken, "crawl")
    fail(store, taken)
    clock.advance(100)
    waiting = claim_one(store)
    store.write_sync(prune, clock.now() + timedelta(seconds=1))
    assert count(store, "steps") == 1
    complete(store, waiting)
    clock.advance(2000)
    store.write_sync(prune, clock.now())
    assert (count(store, "steps"), count(store, "jobs")) == (0, 0)


@pytest.mark.rule("STEP-03", "CAN-01")
def test_a_cancelled_run_may_keep_steps_until_it_ends(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    taken = claim_one(store)
    cancel(store, job.id)
    assert keep(store, taken, "cleaned") == "1"


@pytest.mark.rule("STEP-06")
def test_a_manual_retry_keeps_the_steps_or_drops_those_from_one_on(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    job = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=0))
    taken = claim_one(store)
    for name in ("c", "a", "b"):
        keep(store, taken, name)
        clock.advance(1)
    fail(store, taken)
    store.write_sync(retry_job, job.id)
    assert store.read_sync(kept_values, job.id).keys() == {"a", "b", "c"}
    with pytest.raises(Conflict, match="is unfinished"):
        store.write_sync(retry_job, job.id, is_fresh=True)
    fail(store, claim_one(store))
    with pytest.raises(NotFound, match="no step 'd'"):
        store.write_sync(retry_job, job.id, from_step="d")
    store.write_sync(retry_job, job.id, from_step="a")
    assert store.read_sync(kept_values, job.id).keys() == {"c"}
    fail(store, claim_one(store))
    store.write_sync(retry_job, job.id, is_fresh=True)
    assert store.read_sync(kept_values, job.id) == {}
