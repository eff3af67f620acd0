"""Waits and signals: the next job of the chain is made with the end of the run, and no signal is lost."""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.errors import Conflict, HoldbeatError, NotFound
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import Hold, Job, NewJob, RetryPolicy
from holdbeat.domain.lease import Claim
from holdbeat.domain.params import dumps
from holdbeat.domain.run import Outcome
from holdbeat.domain.views import job_json
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.signals import SignalWait, give_up_waiting, look_for_signal, send_signal
from holdbeat.store.durable.steps import LeaseGone, kept_values
from holdbeat.store.jobs.edit_job import change_job
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.reads.chains import tip_of
from holdbeat.store.reads.stats import job_counts
from holdbeat.store.recovery.prune import prune
from holdbeat.store.running.settle import Settled
from tests.conformance.acts import (
    OpenStore,
    cancel,
    change,
    claim_all,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_all,
    enqueue_one,
    events_of,
    fail,
    job_of_claim,
    look,
    look_at_group,
    make_group,
    rows,
    settle_as,
)
from tests.conformance.races import HeldOpen, in_background, in_step, together


def sleeping(seconds: float, key: str = "$sleep") -> Outcome:
    return Outcome.continued((Wait(WaitKind.SLEEP, key, None, seconds),))


def waiting(name: str = "go", number: int = 1, timeout_s: float | None = None) -> Outcome:
    return Outcome.continued((Wait(WaitKind.SIGNAL, f"$signal:{name}", None, timeout_s, name, number),))


def wait_of(taken: Claim, name: str = "go", number: int = 1) -> SignalWait:
    lease = taken.lease
    job = job_of_claim(taken)
    key = f"$signal:{name}"
    return SignalWait(lease.id, lease.worker_id, lease.fence, job.id, job.chain_id, key, name, number)


def tip(store: PersistenceAdapter, job_id: str) -> Job:
    return look(store, store.read_sync(tip_of, job_id))


def signal(store: PersistenceAdapter, job_id: str, name: str = "go", payload: Any = None) -> int:
    return store.write_sync(send_signal, job_id, name, payload).number


@pytest.mark.rule("WAIT-01", "WAIT-08")
def test_a_run_that_sleeps_ends_continued_and_the_next_job_stands_in_its_place(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    first = enqueue_one(store, priority=7, labels={"a": "b"}, webhook_url="http://127.0.0.1:1/hook")
    enqueue_one(store, priority=7)
    assert settle_as(store, claim_one(store), sleeping(60)) is Settled.ACCEPTED
    ended, following = look(store, first.id), tip(store, first.id)
    assert ended.run is not None
    assert (ended.status, ended.run.status, ended.run.error) == ("CONTINUED", "CONTINUED", None)
    assert (ended.continued_by, following.retry_of, following.retry_kind) == (following.id, first.id, "continue")
    same = ("type", "params", "priority", "position", "labels", "attempt", "webhook_url")
    assert [getattr(following, name) for name in same] == [getattr(first, name) for name in same]
    assert following.not_before == clock.now() + timedelta(seconds=60)
    assert following.waits_for is not None
    assert following.waits_for["kind"] == "sleep"
    assert following.current_waits == [following.waits_for]
    assert (count(store, "leases"), count(store, "deliveries")) == (0, 0)
    assert store.read_sync(job_counts)["CONTINUED"] == 1
    assert store.read_sync(job_counts)["COMPLETED"] == 0
    clock.advance(61)
    assert job_of_claim(claim_one(store)).id == following.id


@pytest.mark.rule("WAIT-01", "DEC-006")
def test_a_job_in_json_has_all_that_its_chain_waits_for_in_parallel(store: PersistenceAdapter) -> None:
    first = enqueue_one(store)
    outcomes = [waiting("ann"), waiting("bob", timeout_s=60), sleeping(90)]
    settle_as(store, claim_one(store), Outcome.continued(tuple(wait for each in outcomes for wait in each.waits)))
    view = job_json(tip(store, first.id))
    assert [(wait["kind"], wait.get("name")) for wait in view["waits"]] == [
        ("signal", "ann"),
        ("signal", "bob"),
        ("sleep", None),
    ]
    assert view["waits_for"] == view["waits"][0]
    signal(store, first.id, "bob")
    view = job_json(tip(store, first.id))
    assert (view["waits"], view["waits_for"]) == ([], None)


@pytest.mark.rule("WAIT-02")
def test_the_instant_of_a_sleep_is_kept_at_the_first_arrival(store: PersistenceAdapter, clock: ManualClock) -> None:
    first = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=2, base_delay_s=0))
    until = clock.now() + timedelta(seconds=60)
    settle_as(store, claim_one(store), sleeping(60))
    clock.advance(61)
    fail(store, claim_one(store))
    settle_as(store, claim_one(store), sleeping(60))
    kept = store.read_sync(kept_values, first.id)["$sleep"]
    assert until.strftime("%Y-%m-%dT%H:%M:%S") in kept


@pytest.mark.rule("WAIT-01", "DEC-007")
def test_a_continuation_counts_as_no_attempt(store: PersistenceAdapter, clock: ManualClock) -> None:
    first = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=1, base_delay_s=0))
    for number in range(5):
        settle_as(store, claim_one(store), sleeping(1, f"$sleep#{number}"))
        clock.advance(2)
    fail(store, claim_one(store))
    retry = tip(store, first.id)
    assert (retry.attempt, retry.status, retry.chain_id) == (1, "QUEUED", first.id)
    fail(store, claim_one(store))
    assert look(store, retry.id).permanently_failed
    again = store.write_sync(retry_job, retry.id)
    assert again.chain_id == first.id


@pytest.mark.rule("WAIT-01", "CAN-01")
def test_a_cancelled_run_does_not_continue_and_a_waiting_chain_can_be_cancelled(store: PersistenceAdapter) -> None:
    first = enqueue_one(store)
    taken = claim_one(store)
    cancel(store, first.id)
    settle_as(store, taken, sleeping(60))
    assert (look(store, first.id).status, count(store, "jobs")) == ("CANCELLED", 1)
    second = enqueue_one(store)
    settle_as(store, claim_one(store), waiting())
    assert cancel(store, second.id).id == tip(store, second.id).id
    assert tip(store, second.id).status == "CANCELLED"
    with pytest.raises(Conflict, match="has ended"):
        signal(store, second.id)


@pytest.mark.rule("WAIT-01", "LEASE-03")
def test_a_late_worker_cannot_continue_a_chain(store: PersistenceAdapter) -> None:
    enqueue_one(store)
    taken = claim_one(store)
    change(store, "UPDATE leases SET fence = fence + 1")
    assert settle_as(store, taken, sleeping(60)) is Settled.STALE
    assert (count(store, "jobs"), count(store, "steps")) == (1, 0)


@pytest.mark.rule("WAIT-08", "GRP-01")
def test_a_member_that_waits_has_not_ended_for_its_group(store: PersistenceAdapter, clock: ManualClock) -> None:
    group, _ = make_group(store, GroupMode.SEQUENTIAL, OnFailure.STOP, 2)
    settle_as(store, claim_one(store), sleeping(60))
    assert (look_at_group(store, group.id)[0].status, claim_all(store)) == ("RUNNING", [])
    clock.advance(61)
    taken = claim_one(store)
    assert job_of_claim(taken).sequence == 0
    complete(store, taken)
    complete(store, claim_one(store))
    assert look_at_group(store, group.id)[0].status == "COMPLETED"


@pytest.mark.rule("WAIT-03")
def test_a_signal_opens_the_job_that_waits_for_it_and_no_other(store: PersistenceAdapter) -> None:
    first, other = enqueue_one(store), enqueue_one(store)
    for taken in claim_some(store, 2):
        settle_as(store, taken, waiting())
    following = tip(store, first.id)
    assert (following.hold, claim_all(store)) == (Hold.WAITING, [])
    assert signal(store, first.id, "stop") == 1
    assert claim_all(store) == []
    assert signal(store, following.id, payload={"by": "ann"}) == 1
    taken = claim_one(store)
    assert job_of_claim(taken).id == following.id
    assert store.read_sync(look_for_signal, wait_of(taken)) == {"payload": {"by": "ann"}}
    assert tip(store, other.id).hold is Hold.WAITING
    assert [row[0] for row in events_of(store, "signal.sent")] == [following.id, following.id]


@pytest.mark.rule("WAIT-03")
def test_a_signal_that_comes_before_the_wait_counts(store: PersistenceAdapter) -> None:
    first = enqueue_one(store)
    signal(store, first.id, payload=1)
    taken = claim_one(store)
    signal(store, first.id, payload=2)
    assert store.read_sync(look_for_signal, wait_of(taken)) == {"payload": 1}
    assert store.read_sync(look_for_signal, wait_of(taken, number=2)) == {"payload": 2}
    settle_as(store, taken, waiting(number=2))
    assert tip(store, first.id).hold is Hold.READY


@pytest.mark.rule("WAIT-03")
def test_a_wait_times_out_once_and_its_late_signal_is_left_for_the_next_wait(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    first = enqueue_one(store)
    settle_as(store, claim_one(store), waiting(timeout_s=30))
    assert claim_all(store) == []
    clock.advance(31)
    taken = claim_one(store)
    assert store.read_sync(look_for_signal, wait_of(taken))["is_due"]
    assert store.write_sync(give_up_waiting, wait_of(taken)) == {"timed_out": True}
    signal(store, first.id, payload="late")
    assert store.read_sync(look_for_signal, wait_of(taken)) == {"timed_out": True}
    change(store, "UPDATE leases SET fence = fence + 1")
    with pytest.raises(LeaseGone):
        store.write_sync(give_up_waiting, wait_of(taken))


@pytest.mark.rule("WAIT-03")
def test_a_signal_that_came_before_the_timeout_was_kept_wins(store: PersistenceAdapter, clock: ManualClock) -> None:
    first = enqueue_one(store)
    settle_as(store, claim_one(store), waiting(timeout_s=30))
    clock.advance(31)
    taken = claim_one(store)
    signal(store, first.id, payload="just in time")
    assert store.write_sync(give_up_waiting, wait_of(taken)) == {"payload": "just in time"}


@pytest.mark.rule("WAIT-04")
def test_signals_to_nobody_and_payloads_that_cannot_be_kept_are_refused(store: PersistenceAdapter) -> None:
    first = enqueue_one(store)
    for payload in ("x" * 262_145, float("nan")):
        with pytest.raises(HoldbeatError):
            signal(store, first.id, payload=payload)
    with pytest.raises(HoldbeatError, match="name has"):
        signal(store, first.id, "")
    with pytest.raises(NotFound):
        signal(store, "01890000-0000-7000-8000-00000000abcd")
    complete(store, claim_one(store))
    with pytest.raises(Conflict, match="has ended") as refusal:
        signal(store, first.id)
    assert refusal.value.code == "already_ended"
    assert count(store, "signals") == 0


@pytest.mark.rule("WAIT-03")
def test_a_signal_that_waits_for_the_end_of_the_run_opens_the_job_after_it(
    store_url: str, store: PersistenceAdapter, open_store: OpenStore
) -> None:
    """The settle holds its locks and has not committed: the signal must not slip between the look and the wait."""
    if store_url.startswith("sqlite"):
        first = enqueue_one(store)
        settle_as(store, claim_one(store), waiting())
        signal(store, first.id)
        assert tip(store, first.id).hold is Hold.READY
        return
    from holdbeat.store.running.settle import settle
    from tests.conformance.acts import settlement

    first = enqueue_one(store)
    taken = claim_one(store)
    with HeldOpen(store, settle, [settlement(taken, waiting())]) as held:
        sending = in_background(lambda: signal(open_store(), first.id))
        threading.Event().wait(0.3)
        assert not sending.done()
        held.commit()
        assert sending.result(30) == 1
    assert tip(store, first.id).hold is Hold.READY


@pytest.mark.rule("WAIT-03")
def test_a_run_that_waits_for_a_signal_being_sent_finds_it(
    store_url: str, store: PersistenceAdapter, open_store: OpenStore
) -> None:
    first = enqueue_one(store)
    taken = claim_one(store)
    with HeldOpen(store, send_signal, first.id, "go", None) as held:
        ending = in_background(lambda: settle_as(open_store(), taken, waiting()))
        threading.Event().wait(0.3)
        held.commit()
        assert ending.result(30) is Settled.ACCEPTED
    assert tip(store, first.id).hold is Hold.READY


@pytest.mark.rule("WAIT-03")
def test_signal_and_wait_race_a_thousand_times_and_no_signal_is_lost(
    store: PersistenceAdapter, open_store: OpenStore
) -> None:
    other = open_store()
    rounds = 1000
    jobs = enqueue_all(store, [NewJob("noop")] * rounds)
    claims: dict[str, Claim] = {}
    for first_slot in range(0, rounds, 100):
        for taken in claim_some(store, 100, first_slot=first_slot):
            claims[job_of_claim(taken).id] = taken
    settled, numbers = in_step(
        [partial(settle_as, store, claims[job.id], waiting()) for job in jobs],
        [partial(signal, other, job.id) for job in jobs],
    )
    assert set(map(str, settled)) == {"accepted"} and set(numbers) == {1}
    assert rows(store, "SELECT count(*) FROM jobs WHERE status = 'QUEUED' AND hold = 0") == [(rounds,)]
    assert count(store, "signals") == rounds


@pytest.mark.rule("WAIT-03")
def test_signals_sent_at_once_get_numbers_of_their_own(store: PersistenceAdapter, open_store: OpenStore) -> None:
    first = enqueue_one(store)
    stores = [open_store() for _ in range(4)]
    numbers = together([lambda at=at: signal(at, first.id) for at in stores * 4])  # type: ignore[misc]
    assert sorted(numbers) == list(range(1, 17))  # type: ignore[type-var]


@pytest.mark.rule("WAIT-08", "RET-04")
def test_a_job_that_goes_on_in_another_one_cannot_be_retried(store: PersistenceAdapter) -> None:
    first = enqueue_one(store)
    settle_as(store, claim_one(store), waiting())
    following = tip(store, first.id)
    for job_id in (first.id, following.id):
        with pytest.raises(Conflict, match=following.id) as refusal:
            store.write_sync(retry_job, job_id)
        assert refusal.value.code == "not_finished"
    assert count(store, "jobs") == 2


@pytest.mark.rule("WAIT-08", "STEP-06")
def test_a_chain_that_failed_after_a_wait_is_retried_through_any_of_its_jobs(store: PersistenceAdapter) -> None:
    first = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=0))
    settle_as(store, claim_one(store), waiting())
    signal(store, first.id)
    taken = claim_one(store)
    fail(store, taken)
    retry = store.write_sync(retry_job, first.id)
    assert (retry.retry_of, retry.root_id) == (job_of_claim(taken).id, first.id)


@pytest.mark.rule("WAIT-08", "QUE-07")
def test_a_waiting_chain_is_kept_and_goes_whole_when_it_has_ended(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    first = enqueue_one(store)
    settle_as(store, claim_one(store), waiting())
    clock.advance(100_000)
    store.write_sync(prune, clock.now())
    assert count(store, "jobs") == 2
    signal(store, first.id)
    complete(store, claim_one(store))
    clock.advance(100_000)
    store.write_sync(prune, clock.now())
    assert (count(store, "jobs"), count(store, "signals"), count(store, "steps")) == (0, 0, 0)


@pytest.mark.rule("WAIT-02")
def test_a_sleep_can_be_ended_and_moved_through_any_job_of_its_chain(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    first = enqueue_one(store)
    settle_as(store, claim_one(store), sleeping(3600))
    at = clock.now() + timedelta(seconds=60)
    moved = store.write_sync(change_job, first.id, {"not_before": iso(at)})
    assert (moved.id, moved.not_before, moved.hold) == (tip(store, first.id).id, at, Hold.DELAYED)
    assert moved.waits == [{"kind": "sleep", "until": iso(at)}]
    assert store.read_sync(kept_values, first.id) == {"$sleep": dumps({"until": iso(at)})}
    assert claim_all(store) == []
    ended = store.write_sync(change_job, moved.id, {"not_before": None})
    assert (ended.not_before, ended.hold, ended.waits_for) == (None, Hold.READY, None)
    assert store.read_sync(kept_values, first.id) == {"$sleep": dumps({"until": iso(clock.now())})}
    taken = claim_one(store)
    assert job_of_claim(taken).id == moved.id
    settle_as(store, taken, sleeping(3600, "$sleep#2"))
    store.write_sync(change_job, first.id, {"not_before": None})
    assert len(claim_all(store)) == 1
    assert store.read_sync(kept_values, first.id).keys() == {"$sleep", "$sleep#2"}


@pytest.mark.rule("WAIT-03")
@pytest.mark.parametrize("timeout_s", [None, 3600.0])
def test_no_instant_ends_a_wait_for_a_signal(store: PersistenceAdapter, timeout_s: float | None) -> None:
    first = enqueue_one(store)
    settle_as(store, claim_one(store), waiting(timeout_s=timeout_s))
    before = tip(store, first.id)
    with pytest.raises(Conflict, match="Send it the signal 'go'") as refusal:
        store.write_sync(change_job, first.id, {"not_before": None})
    assert refusal.value.code == "not_sleeping"
    assert tip(store, first.id) == before
    assert store.write_sync(change_job, first.id, {"priority": 7}).priority == 7, "all else can be changed"
    signal(store, first.id)
    assert job_of_claim(claim_one(store)).id == before.id


@pytest.mark.rule("WAIT-02", "WAIT-03")
def test_a_sleep_beside_another_wait_is_not_moved(store: PersistenceAdapter) -> None:
    first = enqueue_one(store)
    waits = (*sleeping(3600).waits, *waiting().waits)
    settle_as(store, claim_one(store), Outcome.continued(waits))
    with pytest.raises(Conflict, match=r"Wait for the end of its sleep at .*, or send it the signal 'go'"):
        store.write_sync(change_job, first.id, {"not_before": None})
