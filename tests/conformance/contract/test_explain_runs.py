"""Explanations of Jobs that run or have ended: how they are doing, why they ended, and what followed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import RetryPolicy
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.manual_retry import retry_job
from holdbeat.store.reads.chains import tip_of
from tests.conformance.acts import (
    cancel,
    change,
    claim_one,
    complete,
    enqueue_one,
    fail,
    look,
    make_group,
    settle_as,
    skip,
)
from tests.conformance.contract.test_explain import codes, explained, only, work


@pytest.mark.rule("LEASE-01")
def test_a_running_job_shows_its_worker_lease_and_heartbeat(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store)
    began = clock.now()
    claim_one(store)
    clock.advance(90)
    answer = explained(store, job.id)
    assert answer["state"] == "RUNNING" and answer["estimated_start"] is None
    assert codes(answer) == ["running", "lease"]
    assert only(answer, "running")["since"] == iso(began)
    lease = only(answer, "lease")
    assert (lease["worker_id"], lease["heartbeat_at"]) == ("w", iso(began))
    assert lease["expires_at"] == iso(began + timedelta(seconds=300))
    clock.advance(300)
    assert "lease_expired" in codes(explained(store, job.id))


@pytest.mark.rule("REC-02")
def test_a_running_job_without_a_lease_waits_for_recovery(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    claim_one(store)
    change(store, "DELETE FROM leases")
    answer = explained(store, job.id)
    assert "recovery" in only(answer, "no_lease")["detail"] and "recovery" in answer["summary"]


@pytest.mark.rule("WAIT-08", "STEP-06")
def test_every_job_of_a_chain_that_was_retried_by_hand_says_how_it_goes_on(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    settle_as(store, claim_one(store), Outcome.continued((Wait(WaitKind.SIGNAL, "$signal:go", name="go", number=1),)))
    waiting = store.read_sync(tip_of, job.id)
    cancel(store, waiting)
    retry = store.write_sync(retry_job, waiting)
    ending = f"was tried again by hand as job {retry.id}, which is queued."
    assert explained(store, job.id)["summary"].endswith(f" Job {waiting} {ending}")
    assert explained(store, waiting)["summary"].endswith(f" It {ending}")
    assert only(explained(store, job.id), "manual_retries")["job_ids"] == [retry.id]
    cancel(store, retry.id)
    again = store.write_sync(retry_job, waiting)
    summary = explained(store, job.id)["summary"]
    both = f"as job {retry.id} and job {again.id}; the newest job is {again.id}, which is queued."
    assert summary.endswith(f" Job {waiting} was tried again by hand {both}")
    settle_as(store, claim_one(store), Outcome.continued((Wait(WaitKind.SIGNAL, "$signal:go", name="go", number=1),)))
    tip = store.read_sync(tip_of, again.id)
    assert explained(store, job.id)["summary"].endswith(f"; the newest job is {tip}, which is queued.")


@pytest.mark.rule("WAIT-01", "WAIT-08", "STEP-05")
def test_the_first_job_of_a_long_chain_says_how_the_chain_stands_now(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    signal = Outcome.continued((Wait(WaitKind.SIGNAL, "$signal:go", name="go", number=1),))
    first = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=2, base_delay_s=0))
    fail(store, claim_one(store))
    assert "newest" not in codes(explained(store, first.id)), "the retry is named already"
    settle_as(store, claim_one(store), signal)
    waits = only(explained(store, first.id), "newest")
    tip = store.read_sync(tip_of, first.id)
    assert waits["job_id"] == tip and "waits for the signal 'go'" in waits["detail"]
    assert waits["detail"].startswith(f"The chain goes on: Job {tip} waits.")
    assert explained(store, first.id)["summary"].endswith(waits["detail"])
    change(store, "UPDATE jobs SET hold = 0 WHERE id = :id", id=tip)
    complete(store, claim_one(store))
    ended = only(explained(store, first.id), "newest")
    assert ended["detail"].startswith(f"The chain has ended: Job {tip} completed")


def test_progress_is_part_of_the_answer(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store)
    taken = claim_one(store)
    change(
        store,
        "INSERT INTO progress (run_id, fraction, message, updated_at) VALUES (:id, 0.25, 'page 3\nof 12', :now)",
        id=taken.lease.id,
        now=clock.now(),
    )
    answer = explained(store, job.id)
    assert only(answer, "progress")["fraction"] == 0.25
    assert "It is at 25%: page 3 of 12." in answer["summary"]


@pytest.mark.rule("TIM-01")
def test_a_job_beyond_its_deadline_is_overdue(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store, timeout_s=60)
    claim_one(store)
    deadline = clock.now() + timedelta(seconds=60)
    assert only(explained(store, job.id), "timeout")["deadline"] == iso(deadline)
    clock.advance(61)
    answer = explained(store, job.id)
    assert only(answer, "overdue")["deadline"] == iso(deadline)
    assert "told to end" in answer["summary"]


def test_a_completed_job_says_when_and_where(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = enqueue_one(store)
    taken = claim_one(store)
    clock.advance(12)
    complete(store, taken)
    answer = explained(store, job.id)
    assert codes(answer) == ["completed"]
    assert answer["summary"].startswith(f"Job {job.id} completed at ") and "after 12 s on w" in answer["summary"]


@pytest.mark.rule("DEC-007", "RET-01")
def test_a_failed_job_names_cause_retry_and_chain(store: PersistenceAdapter, clock: ManualClock) -> None:
    root = enqueue_one(store)
    fail(store, claim_one(store), ErrorKind.EXIT, "exit code 3")
    retry_id = look(store, root.id).retried_by
    answer = explained(store, root.id)
    assert codes(answer) == ["failed", "retried", "chain"]
    assert (only(answer, "failed")["error_kind"], only(answer, "failed")["error"]) == ("exit", "exit code 3")
    retried = only(answer, "retried")
    assert (retried["job_id"], retried["status"]) == (retry_id, "QUEUED")
    assert retried["not_before"] == iso(clock.now() + timedelta(seconds=10)) and "in 10 s" in retried["detail"]
    assert [link["job_id"] for link in only(answer, "chain")["jobs"]] == [root.id, retry_id]
    waiting = explained(store, str(retry_id))
    assert "retry of a failed job" in only(waiting, "delayed")["detail"]
    assert "job 2 of 2" in only(waiting, "chain")["detail"]


@pytest.mark.rule("DEC-007")
def test_the_last_failure_says_that_no_retry_is_left(store: PersistenceAdapter, clock: ManualClock) -> None:
    enqueue_one(store, retry_policy=RetryPolicy(max_attempts=1))
    fail(store, claim_one(store))
    clock.advance(60)
    taken = claim_one(store)
    fail(store, taken)
    answer = explained(store, str(taken.lease.job_id))
    assert "its only retry is used up" in only(answer, "permanently_failed")["detail"]
    never = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=0))
    fail(store, claim_one(store))
    assert "max_attempts is 0" in only(explained(store, never.id), "permanently_failed")["detail"]
    rejected = enqueue_one(store)
    fail(store, claim_one(store), ErrorKind.REJECTED, "no such target")
    assert "rejected" in only(explained(store, rejected.id), "permanently_failed")["detail"]


@pytest.mark.rule("RET-04")
def test_manual_retries_are_named_from_both_ends(store: PersistenceAdapter) -> None:
    job = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=0))
    fail(store, claim_one(store))
    again = store.write_sync(retry_job, job.id)
    assert only(explained(store, job.id), "manual_retries")["job_ids"] == [again.id]
    work(store)
    assert only(explained(store, again.id), "manual_retry")["job_id"] == job.id


def test_a_skipped_job_gives_the_handlers_reason(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    skip(store, claim_one(store), "already up to date")
    assert "already up to date" in explained(store, job.id)["summary"]


@pytest.mark.rule("DEC-012")
def test_members_ended_by_their_group_say_so(store: PersistenceAdapter) -> None:
    _, jobs = make_group(store, GroupMode.SEQUENTIAL, OnFailure.SKIP, 2)
    cancel(store, jobs[0].id)
    assert "predecessor" in only(explained(store, jobs[1].id), "skipped")["why"]


@pytest.mark.rule("CAN-01", "CAN-04")
def test_a_cancelled_job_says_whether_its_handler_has_ended(store: PersistenceAdapter, clock: ManualClock) -> None:
    queued = enqueue_one(store)
    cancel(store, queued.id, "ann changed her mind")
    answer = explained(store, queued.id)
    assert answer["state"] == "CANCELLED"
    assert "ann changed her mind. It never ran." in answer["summary"]
    running = enqueue_one(store, cancel_grace_s=10)
    taken = claim_one(store)
    cancel(store, running.id)
    answer = explained(store, running.id)
    assert codes(answer) == ["cancelled", "still_running", "lease"]
    assert "still holds its slot" in answer["summary"] and "in 10 s" in answer["summary"]
    clock.advance(3)
    complete(store, taken)
    assert codes(explained(store, running.id)) == ["cancelled", "run_ended"]


@pytest.mark.rule("SEC-07")
def test_no_explanation_shows_params(store: PersistenceAdapter) -> None:
    secret: dict[str, Any] = {"url": "http://example.org", "headers": {"Authorization": "Bearer sesame"}}
    job = enqueue_one(store, "http", params=secret, resource="http")
    texts = [repr(explained(store, job.id))]
    taken = claim_one(store, first_slot=0, http=1)
    texts.append(repr(explained(store, job.id)))
    fail(store, taken)
    texts.append(repr(explained(store, job.id)))
    assert not any("sesame" in text for text in texts)


@pytest.mark.rule("STEP-05", "WAIT-01")
def test_a_chain_says_what_its_handler_waits_for_at_each_stop(store: PersistenceAdapter, clock: ManualClock) -> None:
    work(store)  # without a worker nobody knows when anything starts
    first = enqueue_one(store)
    claim_one(store, worker="other")
    at_ten = clock.now() + timedelta(seconds=600)
    stops = [
        (Wait(WaitKind.SLEEP, "$sleep", None, 600.0), f"sleeps until {iso(at_ten)} (in 10 min)"),
        (
            Wait(WaitKind.SIGNAL, "$signal:go", None, 600.0, "go", 1),
            f"waits for the signal 'go', until {iso(at_ten)} (in 10 min) at the latest",
        ),
        (Wait(WaitKind.SIGNAL, "$signal:late", None, None, "late", 1), "waits for the signal 'late', without a limit"),
        (Wait(WaitKind.CHILD, "$child:x", None, None, first.id), f"waits for the end of its child, job {first.id}"),
        (Wait(WaitKind.QUESTION, "$ask:x", None, None, first.id), f"waits for the answer to the question {first.id}"),
    ]
    for wait, words in stops:
        job = enqueue_one(store)
        settle_as(store, claim_one(store), Outcome.continued((wait,)))
        following = store.read_sync(tip_of, job.id)
        assert f"Its handler {words}, and holds no slot meanwhile." in explained(store, following)["summary"]
        start = explained(store, following)["estimated_start"]
        assert start == (iso(at_ten) if wait.kind is WaitKind.SLEEP else None), "nobody knows when a signal comes"
        assert f"because its handler {words}. It goes on as job {following}." in explained(store, job.id)["summary"]
        cancel(store, job.id, "seen")
        past = words.replace("sleeps", "slept").replace("waits", "waited")
        assert f"because its handler {past}. It did not go on" in explained(store, job.id)["summary"]
    both = enqueue_one(store)
    settle_as(store, claim_one(store), Outcome.continued((stops[0][0], stops[2][0])))
    answer = explained(store, store.read_sync(tip_of, both.id))
    assert f"waits for the first of 2: it {stops[0][1]} and {stops[2][1]}" in answer["summary"]
    assert [wait["kind"] for wait in only(answer, "waiting")["waits"]] == ["sleep", "signal"]


@pytest.mark.rule("WAIT-01", "WAIT-07")
def test_a_chain_that_was_cancelled_while_it_waited_did_not_go_on(store: PersistenceAdapter) -> None:
    job = enqueue_one(store)
    wait = Wait(WaitKind.SIGNAL, "$signal:go", None, None, "go", 1)
    settle_as(store, claim_one(store), Outcome.continued((wait,)))
    waiting = cancel(store, job.id, "no longer needed")
    summary = explained(store, job.id)["summary"]
    assert f"It did not go on: job {waiting.id}, which waited, was cancelled at " in summary
    assert summary.endswith("(no longer needed).") and "The wait is over" not in summary
