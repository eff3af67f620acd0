"""Cancelling and retrying many at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.errors import Invalid
from holdbeat.domain.group import GroupMode, GroupStatus, OnFailure
from holdbeat.domain.job import JobStatus, NewJob, RetryPolicy
from holdbeat.domain.run import ErrorKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.bulk import cancel_where, retry_where
from tests.conformance.acts import (
    OpenStore,
    cancel,
    claim_one,
    complete,
    count,
    enqueue_all,
    enqueue_one,
    events_of,
    fail,
    look,
    look_at_group,
    make_group,
    skip,
)

ONCE = RetryPolicy(max_attempts=0)


@pytest.mark.rule("CAN-01")
def test_a_dry_run_shows_what_would_be_cancelled_and_changes_nothing(store: PersistenceAdapter) -> None:
    jobs = enqueue_all(store, [NewJob("a", labels={"team": "x"}) for _ in range(3)])
    enqueue_one(store, "a")
    result = store.write_sync(cancel_where, {"label": "team=x"}, None, True)
    assert (result.matched, result.changed, result.ids) == (3, 0, [job.id for job in jobs])
    assert count(store, "jobs", "status = 'QUEUED'") == 4
    assert store.read_sync(cancel_where, {"label": "team=x"}, None, True) == result


@pytest.mark.rule("CAN-01")
def test_every_unfinished_job_that_matches_is_cancelled_and_no_other(store: PersistenceAdapter) -> None:
    done = enqueue_one(store, "a")
    complete(store, claim_one(store))
    running = enqueue_one(store, "a")
    claim_one(store)
    waits = enqueue_one(store, "a")
    other = enqueue_one(store, "b")
    result = store.write_sync(cancel_where, {"type": "a"}, "tidying up")
    assert (result.matched, result.changed, result.ids) == (2, 2, [running.id, waits.id])
    assert {look(store, id_).status for id_ in result.ids} == {JobStatus.CANCELLED}
    assert look(store, waits.id).cancel_reason == "tidying up"
    assert look(store, done.id).status is JobStatus.COMPLETED
    assert look(store, other.id).status is JobStatus.QUEUED
    assert len(events_of(store, "job.cancelled")) == 2
    assert store.write_sync(cancel_where, {"type": "a"}).matched == 0


@pytest.mark.rule("CAN-01")
def test_ids_stand_for_their_chains(store: PersistenceAdapter) -> None:
    root = enqueue_one(store)
    fail(store, claim_one(store))
    tip = look(store, root.id).retried_by
    assert store.write_sync(cancel_where, {"ids": [root.id, "nobody"]}).ids == [tip]
    assert store.write_sync(cancel_where, {"ids": ["nobody"]}).matched == 0


@pytest.mark.rule("GRP-03", "INV-006")
def test_cancelling_all_members_by_a_filter_ends_their_group(store: PersistenceAdapter) -> None:
    group, _ = make_group(store, GroupMode.SEQUENTIAL, OnFailure.CONTINUE, 3)
    assert store.write_sync(cancel_where, {"group_id": group.id}).changed == 3
    assert look_at_group(store, group.id)[0].status is GroupStatus.CANCELLED


def test_filters_by_status_and_age(store: PersistenceAdapter, clock: ManualClock) -> None:
    old = enqueue_one(store)
    middle = clock.advance(10)
    clock.advance(10)
    young = enqueue_one(store)

    def found(**filters: Any) -> list[str]:
        return store.write_sync(cancel_where, filters, None, True).ids

    assert found(created_before=iso(middle)) == [old.id]
    assert found(created_after=middle) == [young.id]
    assert found(created_after=middle - timedelta(seconds=10)) == [young.id]
    assert found(status="QUEUED") == [old.id, young.id]
    assert found(status=["RUNNING", "COMPLETED"]) == []
    assert found(resource="default", type="noop", ids=[young.id]) == [young.id]


@pytest.mark.rule("API-02")
@pytest.mark.parametrize(
    "filters",
    [
        {}, {"type": None}, {"colour": "red"}, {"status": "DONE"}, {"ids": []}, {"ids": [1]},
        {"created_before": "yesterday"}, {"label": "x"},
    ],
)  # fmt: skip
def test_a_filter_that_says_nothing_or_nonsense_is_refused(store: PersistenceAdapter, filters: dict[str, Any]) -> None:
    enqueue_one(store)
    with pytest.raises(Invalid):
        store.write_sync(cancel_where, filters)
    with pytest.raises(Invalid):
        store.write_sync(retry_where, filters)
    assert count(store, "jobs", "status = 'QUEUED'") == 1


@pytest.mark.rule("RET-04")
def test_failed_and_skipped_jobs_are_retried_once_however_often_one_asks(store: PersistenceAdapter) -> None:
    failed = enqueue_one(store, "a", retry_policy=ONCE)
    fail(store, claim_one(store))
    skipped = enqueue_one(store, "a")
    skip(store, claim_one(store))
    enqueue_one(store, "a")
    complete(store, claim_one(store))
    dropped = enqueue_one(store, "a")
    cancel(store, dropped.id)
    retried = enqueue_one(store, "a")
    fail(store, claim_one(store))
    dry = store.write_sync(retry_where, {"type": "a"}, True)
    assert (dry.matched, dry.changed, dry.ids) == (2, 0, [failed.id, skipped.id])
    result = store.write_sync(retry_where, {"type": "a"})
    assert (result.matched, result.changed) == (2, 2)
    assert [look(store, id_).retry_of for id_ in result.ids] == [failed.id, skipped.id]
    assert store.write_sync(retry_where, {"type": "a"}).matched == 0
    assert store.write_sync(retry_where, {"status": "CANCELLED"}).changed == 1
    assert store.write_sync(retry_where, {"ids": [failed.id, retried.id]}).changed == 2


@pytest.mark.rule("RET-04", "CAN-04")
def test_work_that_was_cancelled_and_still_runs_is_not_retried(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    taken = claim_one(store)
    cancel(store, job.id)
    assert store.write_sync(retry_where, {"ids": [job.id]}).matched == 0
    fail(store, taken, ErrorKind.CANCELLED)
    assert store.write_sync(retry_where, {"ids": [taken.lease.id]}).matched == 1


@pytest.mark.rule("RET-04")
def test_a_retry_can_be_asked_for_by_the_kind_of_error(store: PersistenceAdapter) -> None:
    for kind in (ErrorKind.TIMEOUT, ErrorKind.ERROR):
        enqueue_one(store, retry_policy=ONCE)
        fail(store, claim_one(store), kind)
    assert store.write_sync(retry_where, {"error_kind": "timeout"}).changed == 1
    with pytest.raises(Invalid):
        store.write_sync(retry_where, {"error_kind": "boredom"})


@pytest.mark.rule("RET-04", "OPS-06")
def test_two_who_retry_the_same_at_once_make_one_retry_each(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(3)]
    for _ in range(5):
        enqueue_one(stores[0], retry_policy=ONCE)
        fail(stores[0], claim_one(stores[0]))
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda store: store.write_sync(retry_where, {"status": "FAILED"}), stores))
    assert sum(result.changed for result in results) == 5
    assert count(stores[0], "jobs", "retry_kind = 'manual'") == 5
