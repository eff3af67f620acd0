"""QUE-05: who waits long enough comes first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import NewJob
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.edit_job import change_job
from tests.conformance.acts import (
    OpenStore,
    claim_all,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_all,
    enqueue_one,
    fail,
    ids_of,
    look,
    make_group,
    rows,
)

PERIOD_S = 60


@pytest.fixture
def store(open_store: OpenStore) -> PersistenceAdapter:
    return open_store(aging_s=PERIOD_S)


def effective(store: PersistenceAdapter, job_id: str) -> int:
    claim_some(store, 1, types=["nobody-has-this"])
    return int(rows(store, "SELECT effective_priority FROM jobs WHERE id = :id", id=job_id)[0][0])


@pytest.mark.rule("QUE-05")
def test_a_job_gains_one_step_for_each_period_it_waited(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store, priority=3)
    seen = []
    for wait in (59.999, 0.001, 60, 300):
        clock.advance(wait)
        seen.append(effective(store, job.id))
    assert seen == [3, 4, 5, 10]
    assert look(store, job.id).priority == 3


@pytest.mark.rule("QUE-05", "INV-004")
def test_an_old_job_overtakes_newcomers_of_a_higher_priority(store: PersistenceAdapter, clock: ManualClock) -> None:
    old = enqueue_one(store, priority=0)
    clock.advance(2 * PERIOD_S)
    middle = enqueue_one(store, priority=1)
    urgent = enqueue_one(store, priority=3)
    assert ids_of(claim_all(store)) == [urgent.id, old.id, middle.id]


@pytest.mark.rule("QUE-05")
def test_nothing_grows_beyond_100(store: PersistenceAdapter, clock: ManualClock) -> None:
    jobs = [enqueue_one(store, priority=priority) for priority in (99, 100, 0)]
    clock.advance(1000 * PERIOD_S)
    assert [effective(store, job.id) for job in jobs] == [100, 100, 100]
    clock.advance(1000 * PERIOD_S)
    assert [effective(store, job.id) for job in jobs] == [100, 100, 100]


@pytest.mark.rule("QUE-05")
def test_a_retry_starts_again_from_the_base_priority(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store, priority=2)
    clock.advance(5 * PERIOD_S)
    assert effective(store, job.id) == 7
    fail(store, claim_one(store))
    retry = look(store, look(store, job.id).retried_by or "")
    assert (retry.priority, effective(store, retry.id)) == (2, 2)


@pytest.mark.rule("QUE-05")
def test_a_delay_does_not_count_as_waiting(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store, not_before=clock.now() + timedelta(seconds=10 * PERIOD_S))
    clock.advance(10 * PERIOD_S)
    assert effective(store, job.id) == 0
    clock.advance(PERIOD_S)
    assert effective(store, job.id) == 1


@pytest.mark.rule("QUE-05")
def test_the_time_before_a_gate_does_not_count_but_the_time_behind_it_does(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    _, (_, second) = make_group(store, GroupMode.SEQUENTIAL, OnFailure.STOP, 2)
    taken = claim_one(store)
    clock.advance(5 * PERIOD_S)
    complete(store, taken)
    assert effective(store, second.id) == 0
    clock.advance(2 * PERIOD_S)
    assert effective(store, second.id) == 2


@pytest.mark.rule("QUE-05")
def test_without_aging_nobody_ever_grows(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store()
    job = enqueue_one(store)
    clock.advance(1_000_000)
    assert effective(store, job.id) == 0


def has_index(store: PersistenceAdapter) -> bool:
    catalogue = "sqlite_master WHERE name" if store.url.startswith("sqlite") else "pg_indexes WHERE indexname"
    return bool(rows(store, f"SELECT 1 FROM {catalogue} = 'jobs_ageing'"))


@pytest.mark.rule("QUE-05")
def test_only_a_store_that_ages_its_jobs_has_the_index_for_it(open_store: OpenStore) -> None:
    producer = open_store()
    enqueue_one(producer)
    assert not has_index(producer)
    with ThreadPoolExecutor(4) as pool:
        openings = [pool.submit(open_store, aging_s=PERIOD_S) for _ in range(4)]
        assert all(has_index(opening.result(60)) for opening in openings)
    enqueue_one(producer)
    assert has_index(producer) and has_index(open_store())


@pytest.mark.rule("QUE-05")
def test_jobs_of_a_producer_without_ageing_grow_from_when_they_were_eligible(
    open_store: OpenStore, store: PersistenceAdapter, clock: ManualClock
) -> None:
    producer = open_store()
    plain = enqueue_one(producer, priority=3)
    delayed = enqueue_one(producer, not_before=clock.now() + timedelta(seconds=PERIOD_S))
    _, (_, behind) = make_group(producer, GroupMode.SEQUENTIAL, OnFailure.STOP, [NewJob("a"), NewJob("b")])
    clock.advance(2 * PERIOD_S)
    complete(producer, claim_one(producer, types=["a"]))
    clock.advance(PERIOD_S)
    assert [effective(store, job.id) for job in (plain, delayed, behind)] == [6, 2, 1]
    clock.advance(PERIOD_S - 0.001)
    assert [effective(store, job.id) for job in (plain, delayed, behind)] == [6, 2, 1]
    clock.advance(0.001)
    assert [effective(store, job.id) for job in (plain, delayed, behind)] == [7, 3, 2]


@pytest.mark.rule("QUE-05", "INV-004")
def test_a_job_from_before_ageing_was_turned_on_overtakes(open_store: OpenStore, clock: ManualClock) -> None:
    before = open_store()
    old = enqueue_one(before)
    clock.advance(10 * PERIOD_S)
    before.close()
    store = open_store(aging_s=PERIOD_S)
    enqueue_one(store, priority=5)
    assert ids_of([claim_one(store)]) == [old.id]


@pytest.mark.rule("QUE-05")
def test_a_delayed_job_has_waited_since_its_time_however_late_somebody_looks(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    job = enqueue_one(store, not_before=clock.now() + timedelta(seconds=5))
    clock.advance(5 + 10 * PERIOD_S)
    assert effective(store, job.id) == 10


@pytest.mark.rule("QUE-05")
def test_a_long_queue_is_taken_on_in_batches(
    open_store: OpenStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_all(open_store(), [NewJob("a") for _ in range(25)])
    monkeypatch.setattr("holdbeat.store.queue.ageing.AT_ONCE", 10)
    store = open_store(aging_s=PERIOD_S)
    clock.advance(2 * PERIOD_S)
    raised = []
    for _ in range(4):
        claim_some(store, 1, types=["nobody-has-this"])
        raised.append(count(store, "jobs", "effective_priority = 2"))
    assert raised == [10, 20, 25, 25]


@pytest.mark.rule("QUE-05")
def test_a_job_of_the_highest_priority_that_is_lowered_is_counted_anew(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    job = enqueue_one(store, priority=98)
    clock.advance(5 * PERIOD_S)
    assert effective(store, job.id) == 100
    store.write_sync(change_job, job.id, {"priority": 10})
    assert effective(store, job.id) == 12
    clock.advance(PERIOD_S)
    assert effective(store, job.id) == 13
