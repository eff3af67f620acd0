"""Expiry: a job that has not started in time ends SKIPPED, wherever it stands, and no claim starts it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import Hold, Job
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.submission import Submission
from holdbeat.observe.explain import explain_job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.edit_job import change_job
from holdbeat.store.jobs.expiry import expire_jobs
from holdbeat.store.jobs.submit import submit, submit_group
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.queue.pauses import pause
from holdbeat.store.recovery.recover import find_trouble, recovery_units
from holdbeat.store.running.claim import Vacancy, claim
from tests.conformance.acts import (
    TYPES,
    OpenStore,
    claim_all,
    claim_one,
    complete,
    events_of,
    fail,
    ids_of,
    look,
    look_at_group,
    rows,
)
from tests.conformance.races import HeldOpen, in_background


@pytest.fixture(autouse=True)
def types(store: PersistenceAdapter) -> None:
    store.write_sync(announce, [AnnouncedType("noop")])


def send(store: PersistenceAdapter, **fields: Any) -> Job:
    return store.write_sync(submit, [Submission.read({"type": "noop", **fields})]).jobs[0]


@pytest.mark.rule("QUE-09")
def test_a_claim_skips_what_has_expired_and_starts_what_has_not(store: PersistenceAdapter, clock: ManualClock) -> None:
    expiring = send(store, expires_in_s=10, webhook_url="http://127.0.0.1:1/hook", priority=9)
    lasting = send(store, expires_at=clock.now() + timedelta(seconds=10, milliseconds=1))
    clock.advance(10)
    assert ids_of(claim_all(store)) == [lasting.id]
    ended = look(store, expiring.id)
    assert (ended.status, ended.cancel_reason, ended.finished_at) == ("SKIPPED", "expired", clock.now())
    assert ended.run is not None
    assert (ended.run.status, ended.run.error) == ("SKIPPED", "expired")
    assert rows(store, "SELECT job_id, event FROM deliveries") == [(expiring.id, "job.run.skipped")]
    assert [row[0] for row in events_of(store, "run.ended")] == [expiring.id]


@pytest.mark.rule("QUE-09")
def test_it_expires_wherever_it_stands(store: PersistenceAdapter, clock: ManualClock) -> None:
    upstream = send(store, delay_s=1000)
    waiting = send(store, expires_in_s=10, after=[{"job_id": upstream.id}])
    below = send(store, after=[{"job_id": waiting.id}])
    cleanup = send(store, after=[{"job_id": waiting.id}], on_upstream="run")
    members = [Submission.read({"type": "noop", "delay_s": 100}), Submission.read({"type": "noop", "expires_in_s": 5})]
    group, jobs = store.write_sync(submit_group, None, GroupMode.SEQUENTIAL, OnFailure.STOP, members)
    store.write_sync(pause, "gpu")
    paused = send(store, expires_in_s=10, resource="gpu")
    delayed = send(store, expires_in_s=10, delay_s=9)
    clock.advance(10)
    store.write_sync(expire_jobs)
    for job in (waiting, jobs[1], paused, delayed):
        assert look(store, job.id).status == "SKIPPED"
    assert (look(store, below.id).status, look(store, below.id).cancel_reason) == ("CANCELLED", "upstream skipped")
    assert look(store, cleanup.id).hold is Hold.READY
    assert look_at_group(store, group.id)[0].finished_at is None


@pytest.mark.rule("QUE-09")
def test_recovery_ends_what_has_expired_where_nobody_claims(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = send(store, expires_in_s=10)
    terms = LeaseTerms()
    assert not store.read_sync(find_trouble, terms, thorough=False)
    clock.advance(11)
    for verb, arguments in recovery_units(store.read_sync(find_trouble, terms, thorough=False)):
        assert store.write_sync(verb, *arguments)
    assert look(store, job.id).status == "SKIPPED"
    assert not store.read_sync(find_trouble, terms, thorough=False)


@pytest.mark.rule("QUE-09")
def test_what_has_started_does_not_expire_and_neither_do_its_retries(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    job = send(store, expires_in_s=10, retry_policy={"max_attempts": 1, "base_delay_s": 0})
    taken = claim_one(store)
    clock.advance(60)
    assert store.write_sync(expire_jobs) is False
    fail(store, taken)
    retry = claim_one(store)
    complete(store, retry)
    assert look(store, job.id).status == "FAILED"


@pytest.mark.rule("QUE-09")
def test_a_claim_waits_for_who_changes_an_expired_job_and_does_not_start_it(
    store: PersistenceAdapter, open_store: OpenStore, clock: ManualClock
) -> None:
    other = open_store()
    job = send(store, expires_in_s=10)
    clock.advance(10)
    with HeldOpen(store, change_job, job.id, {"labels": {"a": "b"}}) as held:
        claiming = in_background(lambda: claim_all(other))
        held.commit()
    assert claiming.result(30) == []
    assert look(store, job.id).status == "SKIPPED"


@pytest.mark.rule("QUE-09")
def test_a_claim_that_came_first_keeps_its_job(
    store: PersistenceAdapter, open_store: OpenStore, clock: ManualClock
) -> None:
    other = open_store()
    job = send(store, expires_in_s=10)
    clock.advance(9)
    with HeldOpen(store, claim, Vacancy("w", range(1), (), TYPES, None, LeaseTerms())) as held:
        clock.advance(5)
        expiring = in_background(lambda: other.write_sync(expire_jobs))
        claims = held.commit()
    assert expiring.result(30) is False
    assert ids_of(claims) == [job.id]
    assert look(store, job.id).status == "RUNNING"


@pytest.mark.rule("QUE-09")
def test_an_expiry_before_the_start_and_two_expiries_are_refused(store: PersistenceAdapter) -> None:
    with pytest.raises(Invalid, match="expire before it may start"):
        send(store, delay_s=10, expires_in_s=10)
    with pytest.raises(Invalid, match="not both"):
        send(store, expires_in_s=10, expires_at="2030-01-01T00:00:00Z")


@pytest.mark.rule("QUE-09")
def test_explain_says_when_a_job_expires_and_that_it_has(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = send(store, expires_in_s=10)
    assert "expires" in [reason["code"] for reason in store.read_sync(explain_job, job.id)["reasons"]]
    clock.advance(10)
    store.write_sync(expire_jobs)
    assert "skipped at" in store.read_sync(explain_job, job.id)["summary"]
    assert "expired" in store.read_sync(explain_job, job.id)["summary"]
