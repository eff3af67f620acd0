"""Slots: limits per pool, the lane for http, one lease per slot, direct requests ahead of the queue."""

from __future__ import annotations

import apsw
import psycopg
import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.concurrency import ConcurrencyPolicy
from holdbeat.domain.job import NewJob
from holdbeat.domain.reservation import Reservation
from holdbeat.observe.explain import explain_job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.running.reservations import reserve
from tests.conformance.acts import (
    OpenStore,
    cancel,
    claim_some,
    complete,
    count,
    enqueue_all,
    enqueue_one,
    fail,
    ids_of,
    look,
    rows,
)


def request_slot(store: PersistenceAdapter, type_: str = "a", resource: str = "gpu") -> Reservation:
    return store.write_sync(reserve, NewJob(type_, resource=resource), "owner", 600)


@pytest.mark.rule("DEC-011", "CON-002")
@pytest.mark.parametrize(
    ("concurrency", "expected"),
    [
        ("resources:gpu=2,http=16", {("gpu", "a"): 2, ("default", "a"): 1, ("other", "b"): 1, ("http", "http"): 9}),
        ("per_type:a=2,http=3", {("gpu", "a"): 1, ("default", "a"): 1, ("other", "b"): 1, ("http", "http"): 3}),
        ("global:4", {("gpu", "a"): 4}),
        ("unlimited", {("gpu", "a"): 9, ("default", "a"): 9, ("other", "b"): 9, ("http", "http"): 9}),
    ],
)
def test_each_policy_gives_out_exactly_its_slots(
    open_store: OpenStore, concurrency: str, expected: dict[tuple[str, str], int]
) -> None:
    store = open_store(concurrency)
    for resource, type_ in (("gpu", "a"), ("default", "a"), ("other", "b"), ("http", "http")):
        enqueue_all(store, [NewJob(type_, resource=resource) for _ in range(9)])
    claim_some(store, 100, http=100)
    records = rows(store, "SELECT resource, type, count(*) FROM leases GROUP BY resource, type")
    assert {(resource, type_): amount for resource, type_, amount in records} == expected
    assert claim_some(store, 100, worker="another", http=100) == [] or concurrency == "unlimited"


@pytest.mark.rule("DEC-011")
def test_out_of_the_box_one_job_per_resource_runs_at_a_time_over_all_workers(open_store: OpenStore) -> None:
    store, second_store = open_store(str(ConcurrencyPolicy())), open_store(str(ConcurrencyPolicy()))
    first, second = enqueue_all(store, [NewJob("a"), NewJob("a")])
    (running,) = claim_some(store, 5, worker="one")
    assert claim_some(second_store, 5, worker="two") == []
    complete(store, running)
    assert ids_of(claim_some(second_store, 5, worker="two")) == [second.id]
    assert look(store, first.id).status == "COMPLETED"


@pytest.mark.rule("LIM-14", "LIM-04")
def test_a_host_that_hangs_with_a_long_queue_leaves_the_other_hosts_their_slots(open_store: OpenStore) -> None:
    store = open_store(str(ConcurrencyPolicy()))
    hung = enqueue_all(store, [NewJob("http", resource="http", partition="hangs:80") for _ in range(700)])
    assert ids_of(claim_some(store, 0, http=256)) == [job.id for job in hung[:128]]
    others = enqueue_all(store, [NewJob("http", resource="http", partition=f"fine:{n}") for n in (80, 443)])
    assert ids_of(claim_some(store, 0, worker="another", http=128)) == [job.id for job in others]
    reason = store.read_sync(explain_job, hung[-1].id)["reasons"][0]
    assert (reason["code"], reason["limit"], reason["slots"]) == ("resource_full", "each:host", 128)
    assert "for the partition hangs:80 (limit each:host) are held by" in reason["detail"]
    assert reason["detail"].endswith(" and others."), "no number is named that was not counted"


@pytest.mark.rule("CON-002", "CAP-01", "CAN-02")
def test_cancelled_work_that_still_runs_keeps_its_slot(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=1")
    first, second = enqueue_all(store, [NewJob("a", resource="gpu"), NewJob("a", resource="gpu")])
    (running,) = claim_some(store, 1)
    cancel(store, first.id)
    assert claim_some(store, 1, worker="another") == []
    complete(store, running)
    assert ids_of(claim_some(store, 1, worker="another")) == [second.id]


@pytest.mark.rule("CON-002")
def test_a_lowered_limit_ends_no_run_and_starts_none_until_enough_have_ended(open_store: OpenStore) -> None:
    enqueue_all(open_store(), [NewJob("a", resource="gpu") for _ in range(5)])
    running = claim_some(open_store("resources:gpu=3"), 3)
    lower = open_store("resources:gpu=2")
    assert claim_some(lower, 5, worker="another") == []
    complete(lower, running[0])
    assert claim_some(lower, 5, worker="another") == []
    complete(lower, running[1])
    assert len(claim_some(lower, 5, worker="another")) == 1


@pytest.mark.rule("INV-003")
def test_http_calls_use_slots_of_their_own(store: PersistenceAdapter) -> None:
    jobs = enqueue_all(store, [NewJob("a"), NewJob("http", resource="http"), NewJob("http", resource="http")])
    (busy,) = claim_some(store, 1)
    assert ids_of([busy]) == [jobs[0].id]
    lane = claim_some(store, 0, http=2)
    assert ids_of(lane) == [jobs[1].id, jobs[2].id]
    assert [taken.lease.slot for taken in lane] == [-1, -2]
    assert claim_some(store, 5, first_slot=1) == []


@pytest.mark.rule("INV-003")
def test_http_calls_never_take_an_ordinary_slot_nor_the_other_way_round(store: PersistenceAdapter) -> None:
    enqueue_all(store, [NewJob("http", resource="http", priority=9), NewJob("a")])
    ordinary = claim_some(store, 3)
    assert [taken.lease.resource for taken in ordinary] == ["default"]
    assert [taken.lease.resource for taken in claim_some(store, 0, http=3)] == ["http"]


@pytest.mark.rule("INV-003")
def test_the_database_refuses_a_second_lease_in_one_slot(store: PersistenceAdapter) -> None:
    first, second = enqueue_all(store, [NewJob("a"), NewJob("a")])
    claim_some(store, 1)
    with pytest.raises((apsw.ConstraintError, psycopg.errors.UniqueViolation)):
        claim_some(store, 1)
    assert look(store, second.id).status == "QUEUED"
    assert (count(store, "leases"), count(store, "job_runs")) == (1, 1)
    assert look(store, first.id).status == "RUNNING"


@pytest.mark.rule("DEC-004", "DIR-01")
def test_direct_requests_take_the_next_slot_first_come_first_served(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:gpu=1")
    queued = enqueue_one(store, resource="gpu", priority=100)
    (running,) = claim_some(store, 1)
    waiting = enqueue_one(store, resource="gpu", priority=100)
    first = request_slot(store)
    clock.advance(1)
    second = request_slot(store)
    assert claim_some(store, 1, worker="another") == []
    served = [running]
    for _ in range(3):
        complete(store, served[-1])
        served += claim_some(store, 5, worker="another")
    assert [taken.reservation.id for taken in served if taken.reservation] == [first.id, second.id]
    assert ids_of([served[0], served[3]]) == [queued.id, waiting.id]


@pytest.mark.rule("DEC-004")
def test_a_free_slot_is_taken_at_once_and_jobs_get_only_what_is_left_over(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=3")
    jobs = enqueue_all(store, [NewJob("b", resource="gpu") for _ in range(5)])
    request_slot(store)
    request_slot(store)
    claims = claim_some(store, 5)
    assert [taken.reservation is not None for taken in claims] == [True, True, False]
    assert ids_of(claims[2:]) == [jobs[0].id]


@pytest.mark.rule("DEC-004")
def test_a_slot_is_kept_for_a_direct_request_that_another_worker_must_serve(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=2")
    jobs = enqueue_all(store, [NewJob("b", resource="gpu") for _ in range(3)])
    request_slot(store, "a")
    assert ids_of(claim_some(store, 5, types=["b"])) == [jobs[0].id]
    (served,) = claim_some(store, 5, worker="another", types=["a", "b"])
    assert served.reservation is not None


@pytest.mark.rule("DEC-004", "DIR-04")
def test_a_direct_request_makes_no_job_and_its_failure_is_not_retried(open_store: OpenStore) -> None:
    store = open_store("resources:gpu=1")
    reservation = request_slot(store)
    (served,) = claim_some(store, 1)
    assert fail(store, served) == "accepted"
    assert (count(store, "jobs"), count(store, "job_runs"), count(store, "leases")) == (0, 0, 0)
    records = rows(store, "SELECT status, outcome FROM direct_reservations WHERE id = :id", id=reservation.id)
    assert records == [("RELEASED", "FAILED")]


@pytest.mark.rule("DEC-004")
def test_an_expired_request_no_longer_holds_a_slot_back(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:gpu=1")
    job = enqueue_one(store, "b", resource="gpu")
    request_slot(store, "a")
    assert claim_some(store, 1, types=["b"]) == []
    clock.advance(601)
    assert ids_of(claim_some(store, 1, types=["b"])) == [job.id]
