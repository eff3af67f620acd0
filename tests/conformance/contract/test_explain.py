"""Explanations of waiting Jobs and direct requests name exactly who stands in the way, on both stores."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.errors import NotFound
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import Hold, NewJob
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.observe.explain import explain_job, explain_reservation
from holdbeat.observe.wording import moment, span
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.pauses import pause
from holdbeat.store.reads.queue_view import queue
from holdbeat.store.running.reservations import cancel_reservation, reserve
from holdbeat.store.running.workers import begin_stopping, register_worker
from tests.conformance.acts import (
    TYPES,
    OpenStore,
    cancel,
    claim_one,
    claim_some,
    complete,
    enqueue_all,
    enqueue_one,
    job_of_claim,
    make_group,
)

ONE_SLOT = "resources:default=1,gpu=1,http=2"


def work(
    store: PersistenceAdapter,
    name: str = "w",
    *,
    slots: int = 4,
    http_slots: int = 4,
    types: tuple[str, ...] = TYPES,
    resources: tuple[str, ...] | None = None,
) -> Worker:
    """Lets a worker be alive."""
    worker = Worker(name, WorkerKind.WORKER, "host", 1, slots, http_slots, types, resources)
    return store.write_sync(register_worker, worker, LeaseTerms())


def explained(store: PersistenceAdapter, job_id: str) -> dict[str, Any]:
    """The explanation; its codes must agree with the queue's list."""
    answer = store.read_sync(explain_job, job_id)
    assert set(answer) == {"state", "summary", "reasons", "estimated_start"}
    assert all(reason["detail"].endswith(".") for reason in answer["reasons"])
    if answer["state"] == "QUEUED":
        entries = {entry.job.id: entry.blocked_by for entry in store.read_sync(queue).items}
        assert [str(code) for code in entries[job_id]] == codes(answer)[: len(entries[job_id])]
    return answer


def codes(answer: dict[str, Any]) -> list[str]:
    seen: list[str] = []
    for reason in answer["reasons"]:
        if reason["code"] not in seen:
            seen.append(reason["code"])
    return seen


def only(answer: dict[str, Any], code: str) -> dict[str, Any]:
    matching = [reason for reason in answer["reasons"] if reason["code"] == code]
    assert len(matching) == 1, answer
    reason: dict[str, Any] = matching[0]
    return reason


def test_instants_are_written_in_full_with_their_distance(clock: ManualClock) -> None:
    now = clock.now()
    assert moment(now + timedelta(minutes=3), now) == f"{iso(now + timedelta(minutes=3))} (in 3 min)"
    assert moment(now - timedelta(seconds=90), now).endswith("(1 min 30 s ago)")
    assert moment(now, now).endswith("(now)")
    assert [span(amount) for amount in (0.25, 1.5, 59.7, 3600, 90_000)] == ["0.2 s", "1.5 s", "1 min", "1 h", "1 d 1 h"]


@pytest.mark.rule("QUE-06")
def test_a_job_that_nothing_blocks_says_so(store: PersistenceAdapter, clock: ManualClock) -> None:
    work(store)
    job = enqueue_one(store)
    answer = explained(store, job.id)
    assert answer["state"] == "QUEUED"
    assert codes(answer) == ["next"]
    assert answer["estimated_start"] == iso(clock.now())


def test_an_unknown_job_is_not_explained(store: PersistenceAdapter) -> None:
    with pytest.raises(NotFound):
        store.read_sync(explain_job, "01890000-0000-7000-8000-000000000000")


def test_a_delayed_job_says_until_when(store: PersistenceAdapter, clock: ManualClock) -> None:
    work(store)
    until = clock.now() + timedelta(minutes=5)
    answer = explained(store, enqueue_one(store, not_before=until).id)
    assert only(answer, "delayed")["until"] == iso(until)
    assert "in 5 min" in answer["summary"]
    assert answer["estimated_start"] == iso(until)


@pytest.mark.rule("DEC-012")
def test_a_gated_member_names_its_unfinished_predecessor(store: PersistenceAdapter) -> None:
    work(store)
    group, jobs = make_group(store, GroupMode.SEQUENTIAL, OnFailure.STOP, 3)
    claim_one(store)
    reason = only(explained(store, jobs[2].id), "group_predecessor")
    assert (reason["job_id"], reason["status"], reason["group_id"]) == (jobs[0].id, "RUNNING", group.id)
    cancel(store, jobs[0].id)
    assert "CANCELLED and still runs" in only(explained(store, jobs[1].id), "group_predecessor")["detail"]


@pytest.mark.rule("TIME-11")
def test_an_overlapped_job_names_the_job_of_its_schedule(store: PersistenceAdapter) -> None:
    work(store)
    first = enqueue_one(store, schedule_id="s")
    claim_one(store)
    second = enqueue_one(store, schedule_id="s", hold=Hold.OVERLAPPED)
    reason = only(explained(store, second.id), "overlap")
    assert (reason["job_id"], reason["status"]) == (first.id, "RUNNING")
    cancel(store, first.id)
    reason = only(explained(store, second.id), "overlap")
    assert "still runs" in reason["detail"]


@pytest.mark.rule("QUE-04")
def test_a_paused_job_says_who_paused_what_and_when(store: PersistenceAdapter, clock: ManualClock) -> None:
    work(store)
    job = enqueue_one(store, resource="gpu")
    at = clock.now()
    store.write_sync(pause, "gpu", by="ann", reason="driver update")
    clock.advance(120)
    store.write_sync(pause, None, by="bob")
    answer = explained(store, job.id)
    both = [reason for reason in answer["reasons"] if reason["code"] == "paused"]
    assert [(reason["resource"], reason["by"]) for reason in both] == [(None, "bob"), ("gpu", "ann")]
    assert both[1]["since"] == iso(at) and "2 min ago" in both[1]["detail"] and "driver update" in both[1]["detail"]
    assert answer["estimated_start"] is None
    other = enqueue_one(store)
    assert [reason["by"] for reason in explained(store, other.id)["reasons"] if reason["code"] == "paused"] == ["bob"]


@pytest.mark.rule("CON-002", "CAP-01")
def test_a_full_resource_names_its_holders_cancelled_ones_too(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store(ONE_SLOT)
    work(store)
    running = enqueue_one(store, resource="gpu")
    claim_one(store)
    clock.advance(30)
    job = enqueue_one(store, resource="gpu")
    reason = only(explained(store, job.id), "resource_full")
    assert reason["slots"] == 1
    holder = reason["holders"][0]
    assert (holder["job_id"], holder["type"], holder["worker_id"]) == (running.id, "noop", "w")
    assert not holder["cancelled"] and "for 30 s" in reason["detail"]
    cancel(store, running.id)
    reason = only(explained(store, job.id), "resource_full")
    assert reason["holders"][0]["cancelled"] and "cancelled but still running" in reason["detail"]


def test_a_pool_without_any_slot_says_what_to_change(open_store: OpenStore) -> None:
    store = open_store("resources:default=0")
    work(store)
    assert "concurrency" in only(explained(store, enqueue_one(store).id), "resource_full")["detail"]


@pytest.mark.rule("DEC-011")
@pytest.mark.parametrize(("concurrency", "words"), [("global:1", "all work together"), ("per_type:a=1", "job type a")])
def test_a_pool_is_named_as_the_policy_means_it(open_store: OpenStore, concurrency: str, words: str) -> None:
    store = open_store(concurrency)
    work(store)
    enqueue_one(store, "a", resource="gpu")
    claim_one(store)
    assert words in only(explained(store, enqueue_one(store, "a", resource="cpu").id), "resource_full")["detail"]


@pytest.mark.rule("DEC-004", "API-06")
def test_direct_requests_are_shown_as_holders_and_as_those_ahead(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store(ONE_SLOT)
    work(store)
    first = store.write_sync(reserve, NewJob("a"), "w", 600)
    second = store.write_sync(reserve, NewJob("b"), "w", 600)
    job = enqueue_one(store)
    answer = explained(store, job.id)
    assert only(answer, "reservation_waiting")["reservation_ids"] == [first.id, second.id]
    claim_one(store)
    answer = explained(store, job.id)
    assert only(answer, "resource_full")["holders"][0]["reservation_id"] == first.id
    assert only(answer, "reservation_waiting")["reservation_ids"] == [second.id]
    assert f"direct request {second.id} since" in only(answer, "reservation_waiting")["detail"]
    later = explained(store, enqueue_one(store).id)
    assert "Also: a direct request, a borrowed slot or a gate goes first, other jobs are ahead" in later["summary"]


def test_a_missing_worker_is_told_apart_by_its_cause(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store, "a", resource="gpu")

    def cause() -> str:
        return str(only(explained(store, job.id), "no_worker")["cause"])

    assert cause() == "none_alive"
    work(store, "w1", types=("b",))
    assert cause() == "type"
    work(store, "w2", types=("a",), resources=("cpu",))
    assert cause() == "resource"
    work(store, "w3", types=("a",), slots=0)
    assert cause() == "slots"
    clock.advance(10_000)
    assert cause() == "none_alive"
    worker = work(store, "w4")
    store.write_sync(begin_stopping, worker.id)
    assert cause() == "stopping"


def test_busy_workers_are_named_with_what_keeps_them(store: PersistenceAdapter) -> None:
    work(store, slots=1)
    running = enqueue_one(store, "a", resource="cpu")
    claim_one(store)
    answer = explained(store, enqueue_one(store, resource="gpu").id)
    reason = only(answer, "workers_busy")
    assert (reason["slots"], reason["workers"], reason["holders"][0]["job_id"]) == (1, ["w"], running.id)
    assert answer["estimated_start"] is None, "nobody knows how long a takes"


def test_one_holder_that_fills_resource_and_worker_is_one_reason(open_store: OpenStore) -> None:
    store = open_store(ONE_SLOT)
    work(store, slots=1)
    enqueue_one(store)
    claim_one(store)
    assert codes(explained(store, enqueue_one(store).id)) == ["resource_full"]
    waiting = store.write_sync(reserve, NewJob("a"), "w", 600)
    assert codes(store.read_sync(explain_reservation, waiting.id)) == ["resource_full"]


def test_calls_in_the_http_lane_do_not_make_a_worker_busy(store: PersistenceAdapter) -> None:
    work(store, slots=1, http_slots=1)
    enqueue_one(store, "http", resource="http")
    assert claim_some(store, 0, http=1)
    assert codes(explained(store, enqueue_one(store).id)) == ["next"]
    assert codes(explained(store, enqueue_one(store, "http", resource="http").id)) == ["workers_busy"]


@pytest.mark.rule("API-06", "INV-004")
def test_the_place_in_line_counts_only_those_who_go_first(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store(ONE_SLOT)
    work(store)
    enqueue_one(store)
    claim_one(store)
    jobs = enqueue_all(
        store, [NewJob("noop"), NewJob("noop"), NewJob("noop", priority=5), NewJob("noop", resource="x")]
    )
    reason = only(explained(store, jobs[1].id), "jobs_ahead")
    assert (reason["count"], reason["position"]) == (2, 3)
    assert "jobs_ahead" not in codes(explained(store, jobs[2].id))


@pytest.mark.rule("API-06")
def test_the_start_is_estimated_from_the_mean_of_those_ahead(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store(ONE_SLOT)
    work(store)
    for took in (40, 80):
        enqueue_one(store, "a")
        taken = claim_one(store)
        clock.advance(took)
        complete(store, taken)
    enqueue_one(store, "a")
    claim_one(store)
    clock.advance(20)
    _, job = enqueue_all(store, [NewJob("a"), NewJob("b")])
    start = clock.now() + timedelta(seconds=60 - 20 + 60)
    answer = explained(store, job.id)
    assert answer["estimated_start"] == iso(start)
    assert "in 1 min 40 s" in answer["summary"]
    behind = enqueue_one(store, "a")
    assert explained(store, behind.id)["estimated_start"] is None, "b never ran"


@pytest.mark.rule("API-06")
def test_a_busy_worker_delays_the_estimate_of_a_free_resource(store: PersistenceAdapter, clock: ManualClock) -> None:
    work(store, slots=1)
    enqueue_one(store, "a", resource="cpu")
    taken = claim_one(store)
    clock.advance(50)
    complete(store, taken)
    enqueue_one(store, "a", resource="cpu")
    claim_one(store)
    clock.advance(10)
    answer = explained(store, enqueue_one(store, "b", resource="gpu").id)
    assert answer["estimated_start"] == iso(clock.now() + timedelta(seconds=40))


@pytest.mark.rule("DIR-01", "API-06")
def test_a_direct_request_knows_its_place_and_its_probable_start(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store(ONE_SLOT)
    work(store)
    enqueue_one(store, "a")
    taken = claim_one(store)
    clock.advance(60)
    complete(store, taken)
    running = enqueue_one(store, "a")
    claim_one(store)
    first = store.write_sync(reserve, NewJob("a"), "w", 600)
    clock.advance(10)
    second = store.write_sync(reserve, NewJob("b"), "w", 600)
    answer = store.read_sync(explain_reservation, second.id)
    assert answer["state"] == "ACTIVE"
    assert only(answer, "resource_full")["holders"][0]["job_id"] == running.id
    assert only(answer, "reservations_ahead")["position"] == 2
    assert answer["estimated_start"] == iso(clock.now() + timedelta(seconds=50 + 60))
    assert "reservations_ahead" not in codes(store.read_sync(explain_reservation, first.id))


@pytest.mark.rule("DIR-04")
def test_a_direct_request_is_followed_to_its_end(open_store: OpenStore) -> None:
    store = open_store(ONE_SLOT)
    lonely = store.write_sync(reserve, NewJob("a"), "w", 600)
    assert only(store.read_sync(explain_reservation, lonely.id), "no_worker")["cause"] == "none_alive"
    work(store)
    assert codes(store.read_sync(explain_reservation, lonely.id)) == ["next"]
    taken = claim_one(store)
    assert only(store.read_sync(explain_reservation, lonely.id), "running")["worker_id"] == "w"
    store.write_sync(cancel_reservation, lonely.id, "the client went away")
    answer = store.read_sync(explain_reservation, lonely.id)
    assert codes(answer) == ["cancelled", "not_retried", "still_running"]
    assert "the client went away" in answer["summary"]
    complete(store, taken)
    assert codes(store.read_sync(explain_reservation, lonely.id)) == ["cancelled", "not_retried"]
    with pytest.raises(NotFound):
        store.read_sync(explain_reservation, "01890000-0000-7000-8000-000000000000")


def test_a_reservation_whose_time_ran_out_says_so(store: PersistenceAdapter, clock: ManualClock) -> None:
    work(store)
    late = store.write_sync(reserve, NewJob("a"), "w", 60)
    clock.advance(61)
    assert "expired" in codes(store.read_sync(explain_reservation, late.id))


def test_jobs_are_named_by_the_claim_that_runs_them(store: PersistenceAdapter) -> None:
    work(store)
    job = enqueue_one(store)
    taken = claim_one(store)
    assert job_of_claim(taken).id == job.id
    answer = explained(store, job.id)
    assert only(answer, "running")["fence"] == taken.lease.fence
