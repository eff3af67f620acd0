"""What ran when, what waits for whom, and what needs a person: the same on both stores, and cheap behind a history."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import NewJob, RetryPolicy
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.signals import send_signal
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.reads import timeline
from holdbeat.store.reads.estimates import mean_durations
from holdbeat.store.reads.event_log import newest_events
from holdbeat.store.reads.lease_holders import slot_holders
from holdbeat.store.reads.needs_attention import (
    failed_for_good,
    failing_schedules,
    next_schedules,
    unserved,
)
from holdbeat.store.reads.stats import stats
from holdbeat.store.reads.timeline import minutes_since, spans_since
from holdbeat.store.running.reservations import reserve
from holdbeat.store.running.run_output import ProgressEntry, progress
from holdbeat.store.running.workers import register_worker
from tests.conformance.acts import (
    cancel,
    claim_one,
    claim_some,
    complete,
    enqueue_all,
    enqueue_one,
    fail,
    job_of_claim,
    make_group,
    rows,
    settle_as,
    skip,
)

ONCE = RetryPolicy(max_attempts=0)
HOUR = timedelta(hours=1)


def test_minutes_count_what_ended_in_them_by_outcome(store: PersistenceAdapter, clock: ManualClock) -> None:
    began = clock.now()
    for minute in range(3):
        enqueue_all(store, [NewJob("noop", retry_policy=ONCE) for _ in range(3)])
        clock.advance(10)
        one, two, three = claim_some(store, 3)
        clock.advance(5)
        complete(store, one)
        (fail if minute == 1 else complete)(store, two)
        skip(store, three)
        clock.advance(45)
    minutes = store.read_sync(minutes_since, began)
    assert [minute.at - began for minute in minutes] == [timedelta(minutes=n) for n in range(4)]
    assert [minute.ended for minute in minutes] == [
        {"COMPLETED": 2, "SKIPPED": 1},
        {"COMPLETED": 1, "FAILED": 1, "SKIPPED": 1},
        {"COMPLETED": 2, "SKIPPED": 1},
        {},
    ]
    assert minutes[0].waits_s == [10.0, 10.0, 10.0]


@pytest.mark.rule("CAN-04")
def test_the_run_of_a_cancelled_job_is_counted_when_it_ends(store: PersistenceAdapter, clock: ManualClock) -> None:
    """The job ends with the cancel, and its run when the handler has ended."""
    began = clock.now()
    job = enqueue_one(store)
    taken = claim_one(store)
    clock.advance(20)
    cancel(store, job.id)
    assert stats_of_the_last_hour(store)["FAILED"] == 0
    assert [span.finished_at for span in store.read_sync(spans_since, began)[0]] == [None]
    clock.advance(3620)
    assert next(minute.ended for minute in store.read_sync(minutes_since, began)) == {}
    complete(store, taken)
    assert stats_of_the_last_hour(store)["FAILED"] == 1
    assert [minute.ended for minute in store.read_sync(minutes_since, began)][-1] == {"FAILED": 1}
    spans, _ = store.read_sync(spans_since, began + HOUR)
    assert [(span.id, span.status, span.finished_at) for span in spans] == [(taken.lease.id, "FAILED", clock.now())]
    assert store.read_sync(mean_durations, ["noop"]) == {"noop": 3640.0}


def stats_of_the_last_hour(store: PersistenceAdapter) -> dict[str, int]:
    last_hour: dict[str, int] = store.read_sync(stats)["runs"]["last_hour"]
    return last_hour


def test_a_wait_is_counted_from_the_end_of_the_delay(store: PersistenceAdapter, clock: ManualClock) -> None:
    began = clock.now()
    enqueue_one(store, not_before=began + timedelta(seconds=30))
    clock.advance(32)
    complete(store, claim_one(store))
    assert [minute.waits_s for minute in store.read_sync(minutes_since, began)] == [[2.0]]


def signalled(store: PersistenceAdapter, clock: ManualClock) -> None:
    """A chain that goes on after an hour because its signal came."""
    job = enqueue_one(store)
    wait = Wait(WaitKind.SIGNAL, "$signal:go", None, None, "go", 1)
    settle_as(store, claim_one(store), Outcome.continued((wait,)))
    clock.advance(3600)
    store.write_sync(send_signal, job.id, "go")


def second_of_a_group(store: PersistenceAdapter, clock: ManualClock) -> None:
    """A job whose predecessor took an hour."""
    make_group(store, GroupMode.SEQUENTIAL, OnFailure.STOP, 2)
    first = claim_one(store)
    clock.advance(3600)
    complete(store, first)


@pytest.mark.rule("WAIT-08", "OPS-05")
@pytest.mark.parametrize("made_ready", [signalled, second_of_a_group])
def test_what_a_job_waited_for_before_it_was_ready_is_no_wait_for_a_slot(
    store: PersistenceAdapter, clock: ManualClock, made_ready: Callable[[PersistenceAdapter, ManualClock], None]
) -> None:
    made_ready(store, clock)
    began = clock.now()
    clock.advance(5)
    assert store.read_sync(stats)["resources"]["default"]["oldest_wait_s"] == 5
    last = claim_one(store)
    clock.advance(60)
    complete(store, last)
    assert [minute.waits_s for minute in store.read_sync(minutes_since, began)][-1] == [5.0]


def test_spans_are_the_runs_and_direct_requests_of_the_window(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store, "a")
    complete(store, claim_one(store))
    clock.advance(7200)
    since = clock.now() - HOUR
    enqueue_all(store, [NewJob("a"), NewJob("b", resource="gpu")])
    ended, running = claim_some(store, 2)
    clock.advance(4)
    complete(store, ended)
    store.write_sync(reserve, NewJob("c"), "w", 600.0)
    direct = claim_one(store, first_slot=5)
    clock.advance(1)
    spans, is_cut = store.read_sync(spans_since, since)
    assert not is_cut
    assert {(span.id, span.slot, span.status, span.is_direct) for span in spans} == {
        (ended.lease.id, 0, "COMPLETED", False),
        (running.lease.id, 1, None, False),
        (direct.lease.id, 5, None, True),
    }
    complete(store, direct)
    spans, _ = store.read_sync(spans_since, since)
    (request,) = (span for span in spans if span.is_direct)
    assert (request.status, request.worker_id) == ("COMPLETED", "w")
    assert request.finished_at == clock.now()
    _, is_cut = store.read_sync(spans_since, since, limit=1)
    assert is_cut


def test_slot_holders_are_the_live_leases_with_their_progress(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_all(store, [NewJob("a", resource="gpu"), NewJob("b", resource="cpu")])
    taken = claim_some(store, 2)
    lease = taken[0].lease
    entry = ProgressEntry(lease.id, lease.worker_id, lease.fence, 0.25, "a quarter", clock.now())
    store.write_sync(progress, [entry])
    cancel(store, job_of_claim(taken[1]).id)
    result = store.read_sync(slot_holders)
    assert [(item.type, item.resource, item.fraction, item.message, item.is_cancelled) for item in result] == [
        ("b", "cpu", None, None, True),
        ("a", "gpu", 0.25, "a quarter", False),
    ]


def test_what_failed_for_good_is_told_until_somebody_tries_it_again(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    since = clock.now() - HOUR
    bad = enqueue_one(store, retry_policy=ONCE)
    fail(store, claim_one(store), ErrorKind.REJECTED)
    enqueue_one(store)
    fail(store, claim_one(store))
    endpoint_call = NewJob("http", resource="http", retry_policy=ONCE, schedule_id="s")
    enqueue_all(store, [endpoint_call])
    fail(store, claim_some(store, 0, http=1)[0])
    assert [job.id for job in store.read_sync(failed_for_good, since)] == [bad.id]
    assert store.read_sync(failed_for_good, clock.now() + HOUR) == []
    store.write_sync(retry_job, bad.id)
    assert store.read_sync(failed_for_good, since) == []


def test_a_type_without_a_worker_is_told_with_what_waits(store: PersistenceAdapter) -> None:
    enqueue_all(store, [NewJob("a"), NewJob("a"), NewJob("b")])
    worker = Worker("w", WorkerKind.WORKER, "host", 1, types=("b",))
    store.write_sync(register_worker, worker, LeaseTerms())
    assert [(item.type, item.waiting) for item in store.read_sync(unserved)] == [("a", 2)]


def test_a_store_without_trouble_has_nothing_to_tell(store: PersistenceAdapter, clock: ManualClock) -> None:
    assert store.read_sync(failing_schedules) == []
    assert store.read_sync(next_schedules) == []
    assert store.read_sync(spans_since, clock.now() - HOUR) == ([], False)
    assert [minute.ended for minute in store.read_sync(minutes_since, clock.now())] == [{}]


def test_the_newest_events_come_first_and_page_backwards(store: PersistenceAdapter) -> None:
    for _ in range(3):
        enqueue_one(store)
    ids = [row[0] for row in rows(store, "SELECT id FROM events ORDER BY id DESC")]
    events = store.read_sync(newest_events, None, 2)
    assert [event.id for event in events] == ids[:2]
    assert [event.id for event in store.read_sync(newest_events, events[-1].id, 100)] == ids[2:]


@pytest.mark.parametrize("share", [3, 6])
def test_waits_are_measured_on_a_share_of_the_runs_however_regular_the_load_is(
    store: PersistenceAdapter, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    """A job that is alone takes three ids of Events, so that on SQLite its position is three places after the last."""
    monkeypatch.setattr(timeline, "MOST_SAMPLED", 90 // (share - 1))
    began = clock.now()
    for _ in range(90):
        enqueue_one(store)
        complete(store, claim_one(store))
    measured = sum(len(minute.waits_s) for minute in store.read_sync(minutes_since, began))
    assert 0 < measured < 2.5 * 90 / share
