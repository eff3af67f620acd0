"""Groups: every policy, with retries and cancels, and never an end before the last member's run has closed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, Invalid, NotFound
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import NewJob, RetryPolicy
from holdbeat.domain.run import ErrorKind
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.cancel import cancel_group
from holdbeat.store.jobs.submit import submit_group
from holdbeat.store.running.claim import Vacancy, claim
from tests.conformance.acts import (
    OpenStore,
    cancel,
    claim_all,
    claim_one,
    claim_some,
    complete,
    count,
    enqueue_one,
    events_of,
    fail,
    ids_of,
    job_of_claim,
    look,
    look_at_group,
    make_group,
    skip,
)
from tests.conformance.races import HeldOpen, in_background, together

SEQUENTIAL, PARALLEL = GroupMode.SEQUENTIAL, GroupMode.PARALLEL
STOP, CONTINUE, SKIP = OnFailure.STOP, OnFailure.CONTINUE, OnFailure.SKIP
ONCE = RetryPolicy(max_attempts=0)


def once(amount: int) -> list[NewJob]:
    """Members whose first failure is for good."""
    return [NewJob("noop", retry_policy=ONCE) for _ in range(amount)]


def statuses(store: PersistenceAdapter, group_id: str) -> tuple[str, list[str]]:
    group, jobs = look_at_group(store, group_id)
    return group.status, [job.status for job in jobs]


@pytest.mark.rule("DEC-012", "GRP-01")
def test_members_of_a_sequence_run_one_after_the_other(store: PersistenceAdapter, clock: ManualClock) -> None:
    group, jobs = make_group(store, SEQUENTIAL, STOP, 3)
    for number, job in enumerate(jobs):
        assert look_at_group(store, group.id)[0].status == ("RUNNING" if number else "QUEUED")
        taken = claim_one(store)
        assert ids_of([taken]) == [job.id]
        assert claim_all(store, worker="another") == []
        assert look_at_group(store, group.id)[0].status == "RUNNING"
        clock.advance(1)
        complete(store, taken)
    result = look_at_group(store, group.id)[0]
    assert (result.status, result.finished_at) == ("COMPLETED", clock.now())
    assert len(events_of(store, "group.finished")) == 1


@pytest.mark.rule("DEC-012", "GRP-01", "INV-006")
@pytest.mark.parametrize(
    ("on_failure", "group_end", "rest", "reason"),
    [
        (STOP, "PARTIAL", "CANCELLED", "predecessor failed"),
        (SKIP, "PARTIAL", "SKIPPED", "predecessor failed"),
        (CONTINUE, "PARTIAL", "COMPLETED", None),
    ],
)
def test_a_failure_for_good_in_a_sequence_does_what_the_policy_says(
    store: PersistenceAdapter, on_failure: OnFailure, group_end: str, rest: str, reason: str | None
) -> None:
    group, jobs = make_group(store, SEQUENTIAL, on_failure, once(3))
    fail(store, claim_one(store))
    if on_failure is CONTINUE:
        for _ in range(2):
            complete(store, claim_one(store))
    assert claim_all(store) == []
    assert statuses(store, group.id) == (group_end, ["FAILED", rest, rest])
    last = look(store, jobs[2].id)
    assert last.cancel_reason == reason
    assert (last.run.status if last.run else None) == {"SKIPPED": "SKIPPED", "COMPLETED": "COMPLETED"}.get(rest)


@pytest.mark.rule("DEC-012")
@pytest.mark.parametrize("on_failure", list(OnFailure))
def test_a_skipped_member_lets_the_next_one_run(store: PersistenceAdapter, on_failure: OnFailure) -> None:
    group, jobs = make_group(store, SEQUENTIAL, on_failure, 2)
    skip(store, claim_one(store))
    taken = claim_one(store)
    assert ids_of([taken]) == [jobs[1].id]
    complete(store, taken)
    assert statuses(store, group.id) == ("COMPLETED", ["SKIPPED", "COMPLETED"])


@pytest.mark.rule("DEC-012", "GRP-01", "DEC-007")
@pytest.mark.parametrize("on_failure", list(OnFailure))
@pytest.mark.parametrize("mode", list(GroupMode))
def test_a_retry_that_succeeds_makes_good_the_failure(
    store: PersistenceAdapter, clock: ManualClock, mode: GroupMode, on_failure: OnFailure
) -> None:
    group, jobs = make_group(store, mode, on_failure, 2)
    fail(store, claim_one(store))
    assert look_at_group(store, group.id)[0].status == "RUNNING"
    if mode is SEQUENTIAL:
        assert claim_all(store) == []
    clock.advance(10)
    first, *more = claim_some(store, 2)
    assert job_of_claim(first).retry_of == jobs[0].id
    assert bool(more) is (mode is PARALLEL)
    complete(store, first)
    complete(store, more[0] if more else claim_one(store))
    assert statuses(store, group.id)[0] == "COMPLETED"


@pytest.mark.rule("GRP-02", "GRP-01")
@pytest.mark.parametrize(("on_failure", "queued_end"), [(STOP, "CANCELLED"), (SKIP, "SKIPPED"), (CONTINUE, "QUEUED")])
def test_a_failure_for_good_in_a_parallel_group_ends_those_still_queued_retries_included(
    store: PersistenceAdapter, clock: ManualClock, on_failure: OnFailure, queued_end: str
) -> None:
    members = [NewJob("noop"), NewJob("noop"), NewJob("noop", retry_policy=ONCE), NewJob("noop")]
    group, jobs = make_group(store, PARALLEL, on_failure, members)
    retried, running, failing = claim_some(store, 3)
    fail(store, retried)
    fail(store, failing)
    retry = look(store, look(store, jobs[0].id).retried_by or "")
    assert [look(store, jobs[3].id).status, retry.status] == [queued_end, queued_end]
    assert look_at_group(store, group.id)[0].status == "RUNNING"
    complete(store, running)
    if on_failure is CONTINUE:
        clock.advance(10)
        for taken in claim_some(store, 5):
            complete(store, taken)
    assert look_at_group(store, group.id)[0].status == "PARTIAL"


@pytest.mark.rule("INV-006", "DEC-012", "CAN-02")
@pytest.mark.parametrize(
    ("on_failure", "rest", "group_end"),
    [(STOP, "CANCELLED", "CANCELLED"), (SKIP, "SKIPPED", "CANCELLED"), (CONTINUE, "QUEUED", "RUNNING")],
)
def test_a_cancelled_member_that_still_runs_holds_the_sequence_until_its_run_closes(
    store: PersistenceAdapter, on_failure: OnFailure, rest: str, group_end: str
) -> None:
    group, jobs = make_group(store, SEQUENTIAL, on_failure, 2)
    taken = claim_one(store)
    cancel(store, jobs[0].id)
    assert statuses(store, group.id) == ("RUNNING", ["CANCELLED", "QUEUED"])
    assert claim_all(store, worker="another") == []
    complete(store, taken)
    assert statuses(store, group.id) == (group_end, ["CANCELLED", rest])
    if rest != "QUEUED":
        assert look(store, jobs[1].id).cancel_reason == "predecessor cancelled"
    assert bool(claim_all(store, worker="another")) is (rest == "QUEUED")


@pytest.mark.rule("DEC-012", "CAN-01")
def test_cancelling_a_queued_member_takes_the_next_step_at_once(store: PersistenceAdapter) -> None:
    group, jobs = make_group(store, SEQUENTIAL, STOP, 3)
    complete(store, claim_one(store))
    cancel(store, jobs[1].id)
    assert statuses(store, group.id) == ("PARTIAL", ["COMPLETED", "CANCELLED", "CANCELLED"])


@pytest.mark.rule("GRP-03", "INV-006")
@pytest.mark.parametrize("mode", list(GroupMode))
@pytest.mark.parametrize("on_failure", list(OnFailure))
def test_cancelling_a_group_ends_what_is_queued_and_tells_what_runs(
    store: PersistenceAdapter, mode: GroupMode, on_failure: OnFailure
) -> None:
    group, _ = make_group(store, mode, on_failure, 3)
    (running,) = claim_some(store, 1)
    store.write_sync(cancel_group, group.id, "enough")
    assert statuses(store, group.id) == ("RUNNING", ["CANCELLED"] * 3)
    complete(store, running)
    assert statuses(store, group.id) == ("CANCELLED", ["CANCELLED"] * 3)
    assert len(events_of(store, "group.finished")) == 1
    with pytest.raises(Conflict):
        store.write_sync(cancel_group, group.id)
    with pytest.raises(NotFound):
        store.write_sync(cancel_group, "no-such-group")


@pytest.mark.rule("GRP-03", "GRP-01")
def test_a_group_cancelled_before_it_started_is_cancelled_at_once(store: PersistenceAdapter) -> None:
    group, _ = make_group(store, SEQUENTIAL, SKIP, 3)
    store.write_sync(cancel_group, group.id)
    assert statuses(store, group.id) == ("CANCELLED", ["CANCELLED"] * 3)
    assert count(store, "job_runs") == 0


@pytest.mark.rule("GRP-04")
def test_an_empty_group_is_refused_and_leaves_nothing(store: PersistenceAdapter) -> None:
    with pytest.raises(Invalid) as refusal:
        store.write_sync(submit_group, None, PARALLEL, STOP, [])
    assert (refusal.value.code, refusal.value.field) == ("empty_group", "jobs")
    assert count(store, "job_groups") == 0


@pytest.mark.rule("GRP-04")
def test_members_keep_their_own_delay_priority_and_resource_and_others_run_between(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    members = [
        NewJob("a", priority=1),
        NewJob("a", priority=9, resource="gpu", not_before=clock.now() + timedelta(seconds=50)),
    ]
    _, jobs = make_group(store, SEQUENTIAL, STOP, members)
    other = enqueue_one(store)
    first, between = claim_some(store, 2)
    assert ids_of([first, between]) == [jobs[0].id, other.id]
    complete(store, first)
    assert claim_all(store, worker="another") == []
    clock.advance(50)
    assert ids_of(claim_all(store, worker="another")) == [jobs[1].id]


@pytest.mark.rule("INV-006", "RET-03")
def test_members_that_end_at_the_same_instant_end_the_group_once(open_store: OpenStore) -> None:
    store, second_store = open_store(), open_store()
    for _ in range(25):
        group, _ = make_group(store, PARALLEL, STOP, 2)
        one, other = claim_some(store, 2)
        results = together([partial(complete, store, one), partial(complete, second_store, other)])
        assert results == ["accepted", "accepted"]
        assert statuses(store, group.id) == ("COMPLETED", ["COMPLETED", "COMPLETED"])
    assert len(events_of(store, "group.finished")) == 25


@pytest.mark.rule("INV-006", "GRP-02")
@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("on_failure", [STOP, SKIP])
def test_a_member_that_is_being_claimed_is_not_ended_by_the_failure_of_another(
    open_store: OpenStore, on_failure: OnFailure
) -> None:
    store, second_store = open_store("unlimited"), open_store("unlimited")
    group, _ = make_group(store, PARALLEL, on_failure, once(2))
    failing = claim_one(store)
    with HeldOpen(second_store, claim, Vacancy("another", [0], (), ["noop"])) as claiming:
        failed = in_background(lambda: fail(store, failing))
        with pytest.raises(TimeoutError):
            failed.result(0.3)
        (taken,) = claiming.commit()
    assert failed.result(20) == "accepted"
    assert statuses(store, group.id) == ("RUNNING", ["FAILED", "RUNNING"])
    assert complete(store, taken) == "accepted"
    assert statuses(store, group.id) == ("PARTIAL", ["FAILED", "COMPLETED"])


@pytest.mark.rule("GRP-03", "INV-006", "CAN-01")
@pytest.mark.parametrize("mode", list(GroupMode))
def test_a_group_cancelled_in_the_midst_of_claims_and_failures_leaves_nothing_behind(
    open_store: OpenStore, clock: ManualClock, mode: GroupMode
) -> None:
    store, second_store = open_store("unlimited"), open_store("unlimited")

    def work(number: int) -> int:
        done = 0
        for attempt in range(4):
            for taken in claim_some(second_store, 2, worker=f"w{number}-{attempt}"):
                fail(second_store, taken, ErrorKind.INTERRUPTED)
                done += 1
        return done

    for number in range(8):
        group, _ = make_group(store, mode, STOP, 3)
        acts: list[Callable[[], object]] = [
            partial(work, number),
            partial(store.write_sync, cancel_group, group.id),
        ]
        results = together(acts)
        assert not isinstance(results[0], Exception), results
        result, jobs = look_at_group(store, group.id)
        assert {job.status for job in jobs} <= {"CANCELLED", "FAILED"}
        assert result.status == "CANCELLED"
        assert [job.id for job in jobs if job.status == "FAILED" and job.retried_by is None] == []
    assert count(store, "leases") == 0
    clock.advance(1000)
    assert claim_all(store) == []


@pytest.mark.rule("DEC-012")
@pytest.mark.parametrize("words", ["predecessor failed", "predecessor cancelled"])
def test_a_person_who_cancels_in_the_words_of_the_policy_stops_the_sequence_as_any_other(
    store: PersistenceAdapter, words: str
) -> None:
    group, jobs = make_group(store, SEQUENTIAL, STOP, 3)
    cancel(store, jobs[0].id, words)
    result, members = look_at_group(store, group.id)
    assert [job.status for job in members] == ["CANCELLED"] * 3
    assert [job.cancel_reason for job in members] == [words, "predecessor cancelled", "predecessor cancelled"]
    assert result.status == "CANCELLED"
