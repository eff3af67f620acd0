"""Groups with a job that runs when they have ended."""

from __future__ import annotations

from typing import Any

import pytest

from holdbeat.domain.errors import HoldbeatError
from holdbeat.domain.group import GroupMode, JobGroup, OnFailure, ThenWhen
from holdbeat.domain.job import Hold, Job
from holdbeat.domain.submission import Submission
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.cancel import cancel_group
from holdbeat.store.jobs.submit import Then, submit, submit_group
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.reads.upstreams import upstream_results
from tests.conformance.acts import claim_all, claim_one, complete, count, fail, ids_of, look, look_at_group


@pytest.fixture(autouse=True)
def types(store: PersistenceAdapter) -> None:
    store.write_sync(announce, [AnnouncedType("noop")])


def read(**fields: Any) -> Submission:
    return Submission.read({"type": "noop", "retry_policy": {"max_attempts": 0}, **fields})


def make(
    store: PersistenceAdapter, when: ThenWhen, *members: Submission, then: Submission | None = None
) -> tuple[JobGroup, list[Job], Job]:
    submissions = members or (read(), read())
    group, jobs = store.write_sync(
        submit_group, None, GroupMode.PARALLEL, OnFailure.CONTINUE, submissions, Then(then or read(priority=9), when)
    )
    assert group.then_job_id is not None
    return group, jobs, look(store, group.then_job_id)


@pytest.mark.rule("GRP-05")
def test_the_job_after_a_group_runs_when_the_group_has_ended_and_gets_its_results(store: PersistenceAdapter) -> None:
    group, jobs, then = make(store, ThenWhen.COMPLETED)
    assert (then.hold, then.group_id) == (Hold.BLOCKED, None)
    assert look_at_group(store, group.id)[0].then_job_id == then.id
    claims = claim_all(store)
    assert ids_of(claims) == [job.id for job in jobs]
    complete(store, claims[1], "second")
    assert look(store, then.id).hold is Hold.BLOCKED
    complete(store, claims[0], "first")
    assert ids_of(claim_all(store)) == [then.id]
    entries = store.read_sync(upstream_results, then.id)
    assert [(entry["name"], entry["status"], entry["result"]) for entry in entries] == [
        ("group", "COMPLETED", ["first", "second"])
    ]


@pytest.mark.rule("GRP-05")
@pytest.mark.parametrize(("when", "status"), [(ThenWhen.ALWAYS, "QUEUED"), (ThenWhen.COMPLETED, "CANCELLED")])
def test_after_a_group_that_did_not_complete_only_always_runs(
    store: PersistenceAdapter, when: ThenWhen, status: str
) -> None:
    _, _, then = make(store, when)
    complete(store, claim_one(store), 1)
    fail(store, claim_one(store))
    ended = look(store, then.id)
    assert (ended.status, ended.hold is Hold.READY) == (status, when is ThenWhen.ALWAYS)
    group, _, then = make(store, when)
    if when is ThenWhen.ALWAYS:
        complete(store, claim_one(store))
    store.write_sync(cancel_group, group.id)
    ended = look(store, then.id)
    assert (ended.status, ended.cancel_reason) == (status, None if status == "QUEUED" else "upstream cancelled")


@pytest.mark.rule("GRP-05", "DEP-02")
def test_a_group_whose_members_end_as_they_are_stored_still_has_its_job_decided(store: PersistenceAdapter) -> None:
    upstream = store.write_sync(submit, [read()]).jobs[0]
    fail(store, claim_one(store))
    after = [{"job_id": upstream.id}]
    group, _, then = make(store, ThenWhen.ALWAYS, read(after=after), read(after=after))
    assert look_at_group(store, group.id)[0].status == "CANCELLED"
    assert then.hold is Hold.READY


@pytest.mark.rule("GRP-05", "QUE-02")
@pytest.mark.parametrize("fields", [{"type": "unheard of"}, {"after": [{"ref": "x"}]}, {"unique_key": "k"}])
def test_a_group_whose_job_after_it_is_refused_is_not_stored(store: PersistenceAdapter, fields: dict[str, Any]) -> None:
    with pytest.raises(HoldbeatError):
        make(store, ThenWhen.ALWAYS, then=read(**fields))
    assert (count(store, "jobs"), count(store, "job_groups")) == (0, 0)


@pytest.mark.rule("GRP-05", "QUE-01")
def test_a_group_that_is_sent_again_has_one_job_after_it(store: PersistenceAdapter) -> None:
    members = (read(idempotency_key="a"), read(idempotency_key="b"))
    first, _, then = make(store, ThenWhen.ALWAYS, *members)
    again, _, same = make(store, ThenWhen.ALWAYS, *members)
    assert (first.id, then.id) == (again.id, same.id)
    assert count(store, "jobs") == 3
