"""Children: made once in a chain, cancelled with their parent, and waited for without a slot."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import Hold, Job, JobStatus, NewJob, RetryPolicy
from holdbeat.domain.lease import Claim
from holdbeat.domain.run import Outcome
from holdbeat.domain.submission import Submission
from holdbeat.domain.waits import Wait, WaitKind
from holdbeat.observe.explain import explain_job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.durable.children import look_for_child
from holdbeat.store.durable.steps import LeaseGone
from holdbeat.store.jobs.cancel import cancel_job
from holdbeat.store.jobs.children import ChildCall, make_child
from holdbeat.store.jobs.submit import submit
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.reads.chains import tip_of
from holdbeat.store.reads.list_jobs import list_jobs
from holdbeat.store.recovery.prune import prune
from holdbeat.store.running.settle import settle
from tests.conformance.acts import (
    OpenStore,
    cancel,
    claim_all,
    claim_one,
    complete,
    count,
    events_of,
    fail,
    ids_of,
    job_of_claim,
    look,
    look_at_group,
    make_group,
    settle_as,
    settlement,
)
from tests.conformance.races import HeldOpen, in_background, together


@pytest.fixture(autouse=True)
def types(store: PersistenceAdapter) -> None:
    store.write_sync(announce, [AnnouncedType("noop")])


def start(store: PersistenceAdapter, **fields: Any) -> Claim:
    """A job that runs."""
    request = {"type": "noop", "retry_policy": {"max_attempts": 2, "base_delay_s": 0}, **fields}
    job = store.write_sync(submit, [Submission.read(request)]).jobs[0]
    return next(taken for taken in claim_all(store) if job_of_claim(taken).id == job.id)


def call(
    taken: Claim, key: str = "$child:noop", *, detached: bool = False, awaited: bool = False, **fields: Any
) -> Any:
    lease, job = taken.lease, job_of_claim(taken)
    request = {"type": "noop", "retry_policy": {"max_attempts": 0}, **fields}
    return ChildCall(lease.id, lease.worker_id, lease.fence, job.id, job.chain_id, key, request, detached, awaited)


def child_of(store: PersistenceAdapter, taken: Claim, key: str = "$child:noop", **fields: Any) -> str:
    return store.write_sync(make_child, call(taken, key, **fields))


@pytest.mark.rule("AUD-01", "WAIT-07")
def test_the_actor_of_a_child_is_the_job_whose_handler_made_it(store: PersistenceAdapter) -> None:
    parent = start(store)
    child_id = child_of(store, parent)
    queued = {job_id: json.loads(data or "{}") for job_id, _, _, data in events_of(store, "job.queued")}
    assert queued[child_id]["actor"] == f"job {job_of_claim(parent).id}"
    assert "actor" not in queued[job_of_claim(parent).id]


def waiting_for(child_id: str) -> Outcome:
    return Outcome.continued((Wait(WaitKind.CHILD, "$child:noop", name=child_id),))


def tip(store: PersistenceAdapter, job_id: str) -> Job:
    return look(store, store.read_sync(tip_of, job_id))


@pytest.mark.rule("WAIT-06", "WAIT-07")
def test_a_child_is_made_once_in_the_whole_chain_and_knows_its_parent(store: PersistenceAdapter) -> None:
    taken = start(store)
    parent = job_of_claim(taken)
    child_id = child_of(store, taken)
    assert child_of(store, taken) == child_id
    fail(store, taken)
    retry = next(item for item in claim_all(store) if job_of_claim(item).retry_of == parent.id)
    assert child_of(store, retry) == child_id
    assert child_of(store, retry, "$child:noop#2") != child_id
    assert look(store, child_id).parent_id == parent.id
    children = store.read_sync(list_jobs, {"parent_id": parent.id}).items
    assert child_id in [job.id for job in children]
    explanation = store.read_sync(explain_job, child_id)
    assert [reason["job_id"] for reason in explanation["reasons"] if reason["code"] == "parent"] == [parent.id]


@pytest.mark.rule("WAIT-07")
def test_cancelling_a_job_cancels_its_unfinished_descendants_but_not_detached_ones(store: PersistenceAdapter) -> None:
    taken = start(store)
    parent = job_of_claim(taken)
    done, queued = child_of(store, taken, "$child:1"), child_of(store, taken, "$child:2", delay_s=1000)
    detached = child_of(store, taken, "$child:3", detached=True, delay_s=1000)
    running = claim_one(store, worker="v")
    assert job_of_claim(running).id == done
    grandchild = child_of(store, running, delay_s=1000)
    complete(store, running)
    below_detached = look(store, detached)
    cancel(store, parent.id, "not needed")
    assert [look(store, item).status for item in (done, queued, grandchild, detached)] == [
        "COMPLETED",
        "CANCELLED",
        "CANCELLED",
        "QUEUED",
    ]
    assert look(store, queued).cancel_reason == "parent cancelled"
    assert below_detached.is_detached
    with pytest.raises(LeaseGone):
        child_of(store, taken, "$child:4")
    assert count(store, "jobs") == 5


@pytest.mark.rule("WAIT-07")
@pytest.mark.parametrize(("on_failure", "status"), [(OnFailure.STOP, "CANCELLED"), (OnFailure.SKIP, "SKIPPED")])
def test_a_parent_that_its_group_ends_takes_its_children_with_it(
    store: PersistenceAdapter, on_failure: OnFailure, status: str
) -> None:
    once = RetryPolicy(max_attempts=0)
    members = [NewJob("noop", retry_policy=once), NewJob("noop", retry_policy=once)]
    group, jobs = make_group(store, GroupMode.PARALLEL, on_failure, members)
    parent, failing = claim_all(store)
    queued, detached = (
        child_of(store, parent, "$child:1", delay_s=1000),
        child_of(store, parent, "$child:2", detached=True, delay_s=1000),
    )
    running_id = child_of(store, parent, "$child:3")
    running = claim_one(store, worker="v")
    settle_as(store, parent, Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, 600.0),)))
    report = Submission.read({"type": "noop", "after": [{"job_id": queued}], "on_upstream": "run"})
    dependent = store.write_sync(submit, [report]).jobs[0]
    fail(store, failing)
    assert tip(store, jobs[0].id).status == status
    assert [look(store, item).status for item in (queued, running_id, detached)] == ["CANCELLED", "CANCELLED", "QUEUED"]
    assert look(store, running_id).cancel_reason == "parent cancelled"
    assert look(store, dependent.id).hold is Hold.READY
    assert look_at_group(store, group.id)[0].status == "PARTIAL"
    complete(store, running)
    assert look(store, running_id).status == "CANCELLED"


@pytest.mark.rule("WAIT-07")
@pytest.mark.parametrize("end", [complete, fail])
def test_a_parent_that_ends_by_itself_leaves_its_children(store: PersistenceAdapter, end: Any) -> None:
    taken = start(store, retry_policy={"max_attempts": 0})
    child_id = child_of(store, taken)
    end(store, taken)
    assert look(store, child_id).status == "QUEUED"


@pytest.mark.rule("WAIT-07")
def test_a_child_that_is_made_while_its_parent_is_cancelled_is_cancelled_or_refused(
    store: PersistenceAdapter, open_store: OpenStore
) -> None:
    other = open_store()
    taken = start(store)
    with HeldOpen(store, make_child, call(taken, delay_s=1000)) as held:
        cancelling = in_background(lambda: cancel(other, job_of_claim(taken).id))
        child_id = held.commit()
    cancelling.result(30)
    assert look(store, child_id).status == "CANCELLED"
    complete(store, taken)
    taken = start(store)
    with HeldOpen(store, cancel_job, job_of_claim(taken).id) as held:
        making = in_background(lambda: child_of(other, taken, "$child:late"))
        held.commit()
    with pytest.raises(LeaseGone):
        making.result(30)


@pytest.mark.rule("WAIT-06")
@pytest.mark.parametrize("end", [complete, fail])
def test_a_parent_that_waits_for_its_child_goes_on_when_the_childs_chain_has_ended(
    store: PersistenceAdapter, end: Any
) -> None:
    taken = start(store)
    parent = job_of_claim(taken)
    child_id = child_of(store, taken, awaited=True, retry_policy={"max_attempts": 1, "base_delay_s": 0})
    settle_as(store, taken, waiting_for(child_id))
    following = tip(store, parent.id)
    assert (following.hold, following.waits_for) == (Hold.WAITING, {"kind": "child", "until": None, "job_id": child_id})
    assert f"child, job {child_id}" in store.read_sync(explain_job, following.id)["summary"]
    first = claim_one(store)
    assert (job_of_claim(first).id, count(store, "leases")) == (child_id, 1)
    fail(store, first)
    assert look(store, following.id).hold is Hold.WAITING
    assert store.read_sync(look_for_child, child_id) == {"is_over": False}
    end(store, claim_one(store))
    assert look(store, following.id).hold is Hold.READY
    standing = store.read_sync(look_for_child, child_id)
    assert standing["status"] == ("COMPLETED" if end is complete else "FAILED")
    assert ids_of(claim_all(store)) == [following.id]


@pytest.mark.rule("WAIT-06")
def test_a_child_that_ended_before_the_wait_is_not_waited_for(store: PersistenceAdapter) -> None:
    taken = start(store)
    child_id = child_of(store, taken, awaited=True)
    complete(store, claim_one(store, worker="v"), {"n": 1})
    assert store.read_sync(look_for_child, child_id)["result"] == {"n": 1}
    settle_as(store, taken, waiting_for(child_id))
    assert tip(store, job_of_claim(taken).id).hold is Hold.READY


@pytest.mark.rule("WAIT-06")
def test_parent_and_child_that_end_at_the_same_instant_never_leave_a_wait_that_nobody_ends(
    store: PersistenceAdapter, open_store: OpenStore
) -> None:
    other = open_store()
    for number in range(100):
        taken = start(store)
        child_id = child_of(store, taken, awaited=True)
        child = next(item for item in claim_all(store, worker=f"v{number}") if job_of_claim(item).id == child_id)
        acts = [partial(settle_as, store, taken, waiting_for(child_id)), partial(complete, other, child)]
        assert together(acts) == ["accepted", "accepted"]
        following = tip(store, job_of_claim(taken).id)
        assert following.hold is Hold.READY
        complete(store, next(item for item in claim_all(store) if job_of_claim(item).id == following.id))


@pytest.mark.rule("WAIT-06")
def test_the_child_that_ends_first_and_the_parent_that_waits_first_are_both_seen(
    store: PersistenceAdapter, open_store: OpenStore
) -> None:
    other = open_store()
    for parent_first in (True, False):
        taken = start(store)
        child_id = child_of(store, taken, awaited=True)
        child = next(item for item in claim_all(store, worker="v") if job_of_claim(item).id == child_id)
        first, second = settlement(taken, waiting_for(child_id)), settlement(child, Outcome.completed())
        if not parent_first:
            first, second = second, first
        with HeldOpen(store, settle, [first]) as held:
            settling = in_background(partial(other.write_sync, settle, [second]))
            held.commit()
        settling.result(30)
        following = tip(store, job_of_claim(taken).id)
        assert following.hold is Hold.READY
        complete(store, next(item for item in claim_all(store) if job_of_claim(item).id == following.id))


@pytest.mark.rule("WAIT-06")
def test_the_child_of_run_is_a_job_of_its_own(store: PersistenceAdapter) -> None:
    with pytest.raises(Invalid, match="job of its own"):
        child_of(store, start(store), awaited=True, unique_key="k")


@pytest.mark.rule("WAIT-06", "QUE-07")
def test_retention_spares_a_child_whose_parent_may_still_read_it(store: PersistenceAdapter, clock: ManualClock) -> None:
    taken = start(store)
    child_id = child_of(store, taken, awaited=True)
    complete(store, claim_one(store, worker="v"), "kept")
    settle_as(store, taken, Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, 1_000_000),)))
    clock.advance(900_000)
    store.write_sync(prune, clock.now())
    assert store.read_sync(look_for_child, child_id)["result"] == "kept"
    clock.advance(200_000)
    complete(store, claim_one(store))
    clock.advance(10_000)
    store.write_sync(prune, clock.now())
    assert count(store, "jobs") == 0


@pytest.mark.rule("WAIT-07")
def test_a_grandchild_that_is_made_during_the_cancel_of_its_grandparent_is_cancelled_with_it(
    store: PersistenceAdapter, open_store: OpenStore
) -> None:
    other = open_store()
    store.write_sync(submit, [Submission.read({"type": "noop"})])
    parent = claim_one(store)
    child_id = child_of(store, parent)
    child = claim_one(store, worker="x")
    assert job_of_claim(child).id == child_id
    with HeldOpen(store, make_child, call(child)) as held:
        cancelling = in_background(lambda: cancel(other, job_of_claim(parent).id))
        time.sleep(0.5)
        grandchild_id = held.commit()
    assert cancelling.result(30).status is JobStatus.CANCELLED
    assert [look(store, id_).status for id_ in (child_id, grandchild_id)] == [JobStatus.CANCELLED] * 2
