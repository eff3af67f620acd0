"""Throttled work: who was called asked for no other call before some time."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.job import NewJob, RetryPolicy
from holdbeat.domain.lease import Claim
from holdbeat.domain.limit import Limit
from holdbeat.domain.run import Outcome
from holdbeat.observe.explain import explain_job
from holdbeat.observe.explain_reservation import explain_reservation
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.limits.changes import declare_limits, set_limit
from holdbeat.store.reads.limit_figures import limit_figures
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.recovery.prune import prune
from holdbeat.store.running.claim import Vacancy
from holdbeat.store.running.reservations import reserve
from holdbeat.store.running.settle_and_claim import settle_and_claim
from tests.conformance.acts import (
    OpenStore,
    claim_some,
    complete,
    enqueue_all,
    enqueue_one,
    events_of,
    job_of_claim,
    look,
    rows,
    settle_as,
)

pytestmark = pytest.mark.rule("LIM-06")


def declare(store: PersistenceAdapter, *limits: Limit) -> None:
    store.write_sync(declare_limits, (), limits, by="w")


def throttled(store: PersistenceAdapter, claim: Claim, retry_after_s: float = 30) -> None:
    settle_as(store, claim, Outcome.throttled("HTTP 429", retry_after_s))


def set_slots(store: PersistenceAdapter, slots: int) -> None:
    """As a program does that starts: unlike an operator, it lifts no throttle."""
    declare(store, Limit("api", resource="api", slots=slots))


def starts(store: PersistenceAdapter, worker: str) -> list[str]:
    return [job_of_claim(claim).partition for claim in claim_some(store, 9, worker=worker)]


def test_a_throttled_run_is_retried_when_it_was_told_to_and_no_attempt_is_counted(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store()
    job = enqueue_one(store, "a", retry_policy=RetryPolicy(max_attempts=1, base_delay_s=1))
    for _ in range(3):
        throttled(store, claim_some(store, 1)[0])
        failed = look(store, job.id)
        assert failed.run is not None and failed.run.error_kind == "throttled" and not failed.permanently_failed
        job = look(store, failed.retried_by or "")
        assert job.not_before == clock.now() + timedelta(seconds=30)
        clock.advance(29.9)
        assert claim_some(store, 1) == []
        clock.advance(0.1)
    complete(store, claim_some(store, 1)[0])
    assert look(store, job.id).status == "COMPLETED"


def test_limits_start_no_other_of_the_partition_before_then_and_others_at_once(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store("unlimited")
    declare(store, Limit("api", resource="api", slots=2), Limit("all", slots=50))
    enqueue_all(store, [NewJob("a", resource="api", partition=part) for part in ("x", "y")])
    first, second = claim_some(store, 9)
    enqueue_all(store, [NewJob("a", resource="api", partition=part) for part in ("x", "x", "y", "")])
    enqueue_all(store, [NewJob("b", resource="api", partition="x")])
    enqueue_all(store, [NewJob("b", resource="other", partition="x")])
    throttled(store, first, 30)
    complete(store, second)
    assert starts(store, "two") == ["y", "", "x"], "the last is not on the resource"
    set_slots(store, 9)
    clock.advance(29.999)
    assert starts(store, "three") == []
    clock.advance(0.001)
    assert starts(store, "three") == ["x", "x", "x", "x"], "the jobs of the type b, too"


def test_a_throttle_of_one_partition_ends_when_it_said_and_a_worker_looks_again_then(
    open_store: OpenStore, clock: ManualClock
) -> None:
    store = open_store("resources:api=3")
    jobs = enqueue_all(store, [NewJob("a", resource="api", retry_policy=RetryPolicy(max_attempts=0))] * 3)
    throttled(store, claim_some(store, 1)[0], 30)
    assert look(store, jobs[0].id).permanently_failed, "who wants no retry gets none"
    answer = store.write_sync(settle_and_claim, [], Vacancy("w", range(3), types=("a",)))
    assert answer.claims == []
    assert answer.next_ready_at is not None
    assert 0 <= (answer.next_ready_at - clock.now()).total_seconds() - 30 < 0.01
    clock.advance(30)
    assert len(claim_some(store, 9)) == 2


def test_a_limit_over_everything_holds_back_only_the_type_that_was_throttled(open_store: OpenStore) -> None:
    store = open_store("global:5")
    enqueue_all(store, [NewJob("a"), NewJob("a"), NewJob("b")])
    throttled(store, claim_some(store, 1)[0])
    assert [claim.lease.type for claim in claim_some(store, 9)] == ["b"]


def test_jobs_without_a_partition_are_found_behind_a_throttled_partition(open_store: OpenStore) -> None:
    store = open_store("resources:api=3")
    enqueue_all(store, [NewJob("a", resource="api", partition="x")] * 300)
    enqueue_all(store, [NewJob("a", resource="api")] * 2)
    throttled(store, claim_some(store, 1)[0])
    assert starts(store, "w") == ["", ""]


def test_explain_the_event_and_the_figures_say_until_when(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:api=3")
    first, second = enqueue_all(store, [NewJob("a", resource="api", partition="x")] * 2)
    throttled(store, claim_some(store, 1)[0], 45)
    until = clock.now() + timedelta(seconds=45)
    reasons = store.read_sync(explain_job, second.id)["reasons"]
    assert reasons[0]["code"] == "throttled" and reasons[0]["partition"] == "x" and reasons[0]["limits"] == ["api"]
    assert reasons[0]["detail"].startswith(
        "The service that such jobs of the partition x call asked for no calls before "
    )
    ((job_id, _, _, data),) = events_of(store, "limit.throttled")
    assert job_id == first.id
    assert json.loads(data) == {"limits": ["api"], "type": "a", "partition": "x", "until": iso(until)}
    figures = {limit_figure.limit.name: limit_figure for limit_figure in store.read_sync(limit_figures)}
    ((partition, end),) = figures["api"].throttled
    assert partition == "x" and 0 <= (end - until).total_seconds() < 0.01


def test_a_direct_request_throttles_and_is_throttled(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:api=3")
    made = [store.write_sync(reserve, NewJob("a", resource="api"), "owner", 600) for _ in range(2)]
    claim = claim_some(store, 1)[0]
    throttled(store, claim, 20)
    ended = store.read_sync(RESERVATIONS.get, made[0].id)
    assert (ended.outcome, ended.error_kind) == ("FAILED", "throttled")
    assert claim_some(store, 1) == []
    assert store.read_sync(explain_reservation, made[1].id)["reasons"][0]["code"] == "throttled"
    clock.advance(20)
    assert claim_some(store, 1)[0].lease.reservation_id == made[1].id


def test_an_operator_who_sets_the_limit_again_ends_its_throttles(open_store: OpenStore) -> None:
    store = open_store("resources:api=3")
    enqueue_all(store, [NewJob("a", resource="api")] * 3)
    throttled(store, claim_some(store, 1)[0], 86_400)
    assert claim_some(store, 9) == []
    store.write_sync(set_limit, "api", {"resource": "api", "slots": 3})
    assert len(claim_some(store, 9)) == 2


def test_throttles_that_are_over_are_pruned(open_store: OpenStore, clock: ManualClock) -> None:
    store = open_store("resources:api=3")
    enqueue_all(store, [NewJob("a", resource="api")])
    throttled(store, claim_some(store, 1)[0], 5)
    clock.advance(60)
    store.write_sync(prune, clock.now())
    assert rows(store, "SELECT key FROM throttles") == []
