"""Rerun: a chain that has ended is run again from a step, as a chain of its own."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, NotFound
from holdbeat.domain.job import Job, RetryPolicy
from holdbeat.domain.lease import Claim
from holdbeat.domain.params import dumps
from holdbeat.observe.explain import explain_job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.signals import send_signal
from holdbeat.store.durable.steps import StepEntry, keep_step, kept_values
from holdbeat.store.jobs.manual_retry import rerun_job
from tests.conformance.acts import claim_one, complete, count, enqueue_one, fail, job_of_claim, look


def keep(store: PersistenceAdapter, clock: ManualClock, taken: Claim, name: str, value: Any) -> None:
    lease = taken.lease
    entry = StepEntry(
        lease.id, lease.worker_id, lease.fence, job_of_claim(taken).chain_id, name, dumps(value), clock.now(), 0.5
    )
    store.write_sync(keep_step, entry)
    clock.advance(1)


def completed(store: PersistenceAdapter, clock: ManualClock) -> Job:
    """A chain that failed once, kept three steps and a signal between them, and completed."""
    job = enqueue_one(
        store, params={"n": 1}, retry_policy=RetryPolicy(max_attempts=2, base_delay_s=0), labels={"a": "b"}
    )
    taken = claim_one(store)
    keep(store, clock, taken, "crawl", ["a"])
    fail(store, taken)
    store.write_sync(send_signal, job.id, "approved", {"by": "ann"})
    clock.advance(1)
    taken = claim_one(store)
    keep(store, clock, taken, "embed", [1])
    store.write_sync(send_signal, job.id, "late", None)
    clock.advance(1)
    keep(store, clock, taken, "publish", True)
    complete(store, taken, "done")
    return job


@pytest.mark.rule("STEP-06")
def test_a_completed_chain_is_run_again_from_a_step_with_copies_of_those_before_it(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    job = completed(store, clock)
    again = store.write_sync(rerun_job, job.id, "publish")
    assert (again.chain_id, again.params, again.labels, again.status) == (again.id, {"n": 1}, {"a": "b"}, "QUEUED")
    assert store.read_sync(kept_values, again.id) == {"crawl": '["a"]', "embed": "[1]"}
    assert count(store, "signals", f"root_id = '{again.id}'") == 1
    assert store.read_sync(kept_values, job.id).keys() == {"crawl", "embed", "publish"}
    taken = claim_one(store)
    assert job_of_claim(taken).id == again.id
    keep(store, clock, taken, "publish", False)
    complete(store, taken)
    assert store.read_sync(kept_values, job.id)["publish"] == "true"


@pytest.mark.rule("STEP-06")
def test_without_a_step_the_chain_is_run_again_from_its_start(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = completed(store, clock)
    again = store.write_sync(rerun_job, job.id)
    assert store.read_sync(kept_values, again.id) == {}
    retry_id = look(store, job.id).retried_by
    assert retry_id is not None
    assert look(store, retry_id).manual_retries == (again.id,)


@pytest.mark.rule("STEP-06")
def test_an_unknown_step_and_an_unfinished_chain_are_refused(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = completed(store, clock)
    with pytest.raises(NotFound) as refusal:
        store.write_sync(rerun_job, job.id, "nothing")
    assert refusal.value.code == "unknown_step"
    other = enqueue_one(store)
    with pytest.raises(Conflict, match="has not ended"):
        store.write_sync(rerun_job, other.id)
    assert count(store, "jobs") == 3


@pytest.mark.rule("STEP-05")
def test_explain_names_the_last_step_done_of_a_job_that_runs_or_has_failed(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    job = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=0))
    taken = claim_one(store)
    keep(store, clock, taken, "crawl", ["a"])
    keep(store, clock, taken, "$sleep", {"until": "2026-01-01T00:00:00Z"})
    assert "The last step done is 'crawl'" in store.read_sync(explain_job, job.id)["summary"]
    fail(store, taken)
    assert "The last step done is 'crawl'" in store.read_sync(explain_job, job.id)["summary"]
