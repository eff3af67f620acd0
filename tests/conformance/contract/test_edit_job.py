"""Changing a Job while it waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.errors import Conflict, Invalid, NotFound
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import Hold, JobStatus
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.edit_job import change_job
from holdbeat.store.queue.job_types import AnnouncedType, announce
from tests.conformance.acts import (
    OpenStore,
    cancel,
    change,
    claim_all,
    claim_one,
    complete,
    enqueue_one,
    events_of,
    ids_of,
    look,
    make_group,
    rows,
)


@pytest.mark.rule("INV-001")
def test_a_queued_job_takes_new_params_and_labels(store: PersistenceAdapter) -> None:
    job = enqueue_one(store, params={"a": 1}, labels={"x": "1"})
    changed = store.write_sync(change_job, job.id, {"params": {"b": [1.5, None]}, "labels": {"y": "2"}})
    assert (changed.params, changed.labels) == ({"b": [1.5, None]}, {"y": "2"})
    assert look(store, job.id).params == {"b": [1.5, None]}
    assert len(events_of(store, "job.changed")) == 1


@pytest.mark.rule("INV-001")
@pytest.mark.parametrize("end", ["running", "completed", "cancelled"])
def test_a_job_that_waits_no_more_cannot_be_changed(store: PersistenceAdapter, end: str) -> None:
    job = enqueue_one(store, params={"a": 1})
    if end == "cancelled":
        cancel(store, job.id)
    else:
        taken = claim_one(store)
        if end == "completed":
            complete(store, taken)
    before = look(store, job.id)
    attempts: list[dict[str, Any]] = [{"params": {}}, {"priority": 9}, {"not_before": None}, {"labels": {}}]
    for changes in attempts:
        with pytest.raises(Conflict) as refusal:
            store.write_sync(change_job, job.id, changes)
        assert refusal.value.code == "not_queued"
    assert look(store, job.id) == before


@pytest.mark.rule("INV-001")
def test_the_database_itself_keeps_the_params_of_a_running_job(store: PersistenceAdapter) -> None:
    job = enqueue_one(store, params={"a": 1})
    claim_one(store)
    with pytest.raises(Conflict):
        change(store, "UPDATE jobs SET params = '{}' WHERE id = :id", id=job.id)
    assert look(store, job.id).params == {"a": 1}


@pytest.mark.rule("DEC-005")
def test_another_priority_puts_the_job_at_its_end(store: PersistenceAdapter) -> None:
    first = enqueue_one(store, priority=5)
    job = enqueue_one(store)
    other = enqueue_one(store)
    store.write_sync(change_job, job.id, {"priority": 5})
    last = enqueue_one(store, priority=5)
    assert ids_of(claim_all(store)) == [first.id, job.id, last.id, other.id]


@pytest.mark.rule("DEC-005")
def test_the_same_priority_again_leaves_the_job_where_it_stands(store: PersistenceAdapter) -> None:
    job, other = enqueue_one(store), enqueue_one(store)
    store.write_sync(change_job, job.id, {"priority": 0})
    assert ids_of(claim_all(store)) == [job.id, other.id]


@pytest.mark.rule("INV-004")
def test_a_delay_can_be_set_moved_and_lifted(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store)
    later = clock.now() + timedelta(seconds=60)
    assert store.write_sync(change_job, job.id, {"not_before": iso(later)}).hold is Hold.DELAYED
    assert claim_all(store) == []
    assert store.write_sync(change_job, job.id, {"not_before": clock.now()}).hold is Hold.READY
    store.write_sync(change_job, job.id, {"not_before": later})
    clock.advance(60)
    assert ids_of(claim_all(store)) == [job.id]
    delayed = enqueue_one(store, not_before=clock.now() + timedelta(hours=1))
    lifted = store.write_sync(change_job, delayed.id, {"not_before": None})
    assert (lifted.hold, lifted.not_before) == (Hold.READY, None)
    assert ids_of(claim_all(store, worker="v")) == [delayed.id]


@pytest.mark.rule("DEC-012")
def test_a_closed_gate_stays_closed_whatever_the_delay(store: PersistenceAdapter, clock: ManualClock) -> None:
    _, (first, second) = make_group(store, GroupMode.SEQUENTIAL, OnFailure.STOP, 2)
    later = clock.now() + timedelta(seconds=60)
    assert store.write_sync(change_job, second.id, {"not_before": None}).hold is Hold.GATED
    assert store.write_sync(change_job, second.id, {"not_before": later}).hold is Hold.GATED
    taken = claim_one(store)
    assert ids_of([taken]) == [first.id]
    complete(store, taken)
    assert look(store, second.id).hold is Hold.DELAYED
    clock.advance(60)
    assert ids_of(claim_all(store)) == [second.id]


@pytest.mark.rule("QUE-05")
def test_a_job_keeps_the_raises_it_has_waited_for_when_its_priority_changes(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store("resources:default=0", aging_s=10)
    job = enqueue_one(store, priority=1)

    def effective() -> Any:
        records = rows(store, "SELECT effective_priority, ages_at FROM jobs WHERE id = :id", id=job.id)
        return records[0][0], records[0][1] is not None

    clock.advance(25)
    claim_all(store)
    assert effective() == (3, True)
    store.write_sync(change_job, job.id, {"priority": 50})
    assert effective() == (52, True)
    store.write_sync(change_job, job.id, {"priority": 99})
    assert effective() == (100, False)
    store.write_sync(change_job, job.id, {"priority": 10})
    assert effective() == (11, True)
    store.write_sync(change_job, job.id, {"not_before": clock.now() + timedelta(hours=1)})
    assert effective() == (11, False)
    store.write_sync(change_job, job.id, {"not_before": None})
    assert effective() == (11, True)


@pytest.mark.rule("QUE-06", "SEC-06", "API-02")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"type": "b"}, "type"),
        ({"priority": 101}, "priority"),
        ({"priority": None}, "priority"),
        ({"priority": True}, "priority"),
        ({"params": []}, "params"),
        ({"params": {"n": "text"}}, "params.n"),
        ({"params": {"n": 2**70}}, "params.n"),
        ({"not_before": "soon"}, "not_before"),
        ({"labels": {"x": 1}}, "labels.x"),
    ],
)
def test_a_change_that_does_not_fit_is_refused(store: PersistenceAdapter, changes: dict[str, Any], field: str) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    store.write_sync(announce, [AnnouncedType("noop", schema)])
    job = enqueue_one(store, params={"n": 1})
    with pytest.raises(Invalid) as refusal:
        store.write_sync(change_job, job.id, changes)
    assert refusal.value.field == field
    assert look(store, job.id).status is JobStatus.QUEUED
    assert look(store, job.id).params == {"n": 1}


def test_a_job_that_does_not_exist_is_not_found(store: PersistenceAdapter) -> None:
    with pytest.raises(NotFound):
        store.write_sync(change_job, "nobody", {"priority": 1})


@pytest.mark.rule("QUE-09")
def test_no_delay_reaches_beyond_the_instant_at_which_a_job_expires(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    expires_at = clock.now() + timedelta(seconds=60)
    job = enqueue_one(store, expires_at=expires_at)
    for seconds in (60, 600):
        with pytest.raises(Invalid) as refused:
            store.write_sync(change_job, job.id, {"not_before": iso(clock.now() + timedelta(seconds=seconds))})
        assert refused.value.code == "expires_too_early" and refused.value.field == "not_before"
    assert look(store, job.id).not_before is None
    changed = store.write_sync(change_job, job.id, {"not_before": iso(clock.now() + timedelta(seconds=59))})
    assert changed.hold is Hold.DELAYED
