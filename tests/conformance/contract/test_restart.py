"""DEC-008: close the store, open it again, and find everything as it was."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import StoreDown
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import NewJob
from holdbeat.store.queue.pauses import pause, resume
from tests.conformance.acts import (
    OpenStore,
    claim_all,
    claim_one,
    claim_some,
    complete,
    enqueue_all,
    enqueue_one,
    fail,
    ids_of,
    look,
    make_group,
    rows,
)

TABLES = ("jobs", "job_runs", "leases", "job_groups", "events", "queue_pauses")


def everything(open_store: OpenStore) -> dict[str, list[tuple[object, ...]]]:
    store = open_store()
    by_name = {table: sorted(rows(store, f"SELECT * FROM {table}"), key=repr) for table in TABLES}
    store.close()
    return by_name


@pytest.mark.rule("DEC-008")
def test_queue_order_delays_gates_and_leases_survive_a_restart(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store()
    running = enqueue_one(store, priority=100)
    taken = claim_one(store)
    jobs = enqueue_all(store, [NewJob("a", priority=n % 3) for n in range(9)])
    delayed = enqueue_one(store, priority=50, not_before=clock.now() + timedelta(seconds=30))
    _, members = make_group(store, GroupMode.SEQUENTIAL, OnFailure.STOP, 2)
    store.close()
    before = everything(open_store)
    store = open_store()
    assert everything(open_store) == before
    expected = [job.id for job in sorted(jobs, key=lambda job: (-job.priority, job.position))]
    assert ids_of(claim_all(store, worker="new")) == [*expected, members[0].id]
    assert look(store, running.id).status == "RUNNING"
    assert complete(store, taken) == "accepted"
    clock.advance(30)
    assert ids_of(claim_some(store, 5)) == [delayed.id]


@pytest.mark.rule("DEC-008", "DEC-007")
def test_the_count_of_retries_and_the_verdict_survive_restarts(open_store: OpenStore, clock: ManualClock) -> None:
    enqueue_one(open_store.kept("global:9"))
    for _ in range(4):
        store = open_store()
        fail(store, claim_one(store))
        store.close()
        clock.advance(100)
    store = open_store()
    assert claim_all(store) == []
    assert rows(store, "SELECT count(*) FROM jobs WHERE permanently_failed") == [(1,)]
    assert rows(store, "SELECT count(*) FROM jobs") == [(4,)]


@pytest.mark.rule("DEC-008", "QUE-04")
def test_a_pause_survives_a_restart(open_store: OpenStore) -> None:
    store = open_store()
    job = enqueue_one(store, resource="gpu")
    store.write_sync(pause, "gpu")
    store.close()
    store = open_store()
    assert claim_all(store) == []
    store.write_sync(resume, "gpu")
    assert ids_of(claim_all(store)) == [job.id]


@pytest.mark.rule("DEC-008", "DEC-005")
def test_counters_go_on_after_a_restart(open_store: OpenStore) -> None:
    fences, positions = [], []
    for _ in range(3):
        store = open_store()
        positions.append(enqueue_one(store).position)
        taken = claim_one(store)
        fences.append(taken.lease.fence)
        complete(store, taken)
        store.close()
    assert positions == sorted(set(positions))
    assert fences == sorted(set(fences))


@pytest.mark.rule("DEC-008")
def test_work_handed_in_before_the_end_is_done_and_work_after_it_is_refused(open_store: OpenStore) -> None:
    store = open_store()
    job = enqueue_one(store)
    store.close()
    with pytest.raises(StoreDown) as refusal:
        enqueue_one(store)
    assert refusal.value.code == "store_closed"
    store.close()
    assert look(open_store(), job.id).id == job.id
