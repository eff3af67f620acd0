"""Dependencies: a job starts when all that it names has ended, and a bad end goes down the whole graph at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import HoldbeatError, Invalid
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import Hold, Job, RetryPolicy
from holdbeat.domain.lease import Claim
from holdbeat.domain.run import Outcome
from holdbeat.domain.submission import Submission
from holdbeat.domain.waits import Wait, WaitKind, counted_waits
from holdbeat.observe.explain import explain_job
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.manual_retry import rerun_job, retry_job
from holdbeat.store.jobs.submit import submit, submit_group
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.reads.stats import stats
from holdbeat.store.reads.upstreams import upstream_results
from holdbeat.store.reads.waits import wait_counts
from holdbeat.store.recovery.prune import prune
from holdbeat.store.running.settle import settle
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import (
    OpenStore,
    cancel,
    claim_all,
    claim_one,
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
    rows,
    settle_as,
    settlement,
    skip,
)
from tests.conformance.races import HeldOpen, in_background, in_step

NO_RETRY = {"max_attempts": 0}


@pytest.fixture(autouse=True)
def types(store: PersistenceAdapter) -> None:
    store.write_sync(announce, [AnnouncedType("noop")])


def send(store: PersistenceAdapter, *requests: dict[str, Any]) -> list[Job]:
    """One batch of `noop` jobs without retries."""
    full = [{"type": "noop", "retry_policy": NO_RETRY, **request} for request in requests]
    return store.write_sync(submit, [Submission.read(request) for request in full]).jobs


def send_after(store: PersistenceAdapter, *upstream_ids: str, **request: Any) -> Job:
    return send(store, {"after": [{"job_id": job_id} for job_id in upstream_ids], **request})[0]


def claims_by_job(store: PersistenceAdapter) -> dict[str, Claim]:
    return {job_of_claim(taken).id: taken for taken in claim_all(store)}


@pytest.mark.rule("DEP-01")
def test_a_job_becomes_ready_in_the_transaction_that_ends_the_last_job_it_names(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    first, second = send(store, {}, {})
    dependent = send_after(store, first.id, second.id)
    assert (dependent.status, dependent.hold) == ("QUEUED", Hold.BLOCKED)
    claims = claims_by_job(store)
    assert claims.keys() == {first.id, second.id}
    complete(store, claims[first.id])
    assert look(store, dependent.id).hold is Hold.BLOCKED
    assert claim_all(store) == []
    clock.advance(1)
    complete(store, claims[second.id])
    opened = look(store, dependent.id)
    assert opened.hold is Hold.READY
    assert [(edge.upstream_id, edge.outcome) for edge in opened.after] == [
        (first.id, "COMPLETED"),
        (second.id, "COMPLETED"),
    ]
    assert [edge.met_at for edge in opened.after] == [clock.now() - timedelta(seconds=1), clock.now()]
    assert ids_of(claim_all(store)) == [dependent.id]


@pytest.mark.rule("DEP-01")
def test_retries_and_continuations_belong_to_the_end_that_is_waited_for(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    upstream = send(store, {"retry_policy": {"max_attempts": 1, "base_delay_s": 0}})[0]
    taken = claim_one(store)
    dependent = send_after(store, upstream.id)
    fail(store, taken)
    assert look(store, dependent.id).hold is Hold.BLOCKED
    settle_as(store, claim_one(store), Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, 60),)))
    assert look(store, dependent.id).hold is Hold.BLOCKED
    clock.advance(61)
    # A job that names a middle one of the chain waits for the same end.
    retry_id = look(store, upstream.id).retried_by
    assert retry_id is not None
    second = send_after(store, retry_id)
    complete(store, claim_one(store), "at last")
    assert [look(store, item.id).hold for item in (dependent, second)] == [Hold.READY, Hold.READY]
    assert [edge.upstream_id for edge in look(store, second.id).after] == [upstream.id]
    assert store.read_sync(upstream_results, dependent.id)[0]["result"] == "at last"


@pytest.mark.rule("DEP-01")
def test_what_has_ended_before_is_met_at_once(store: PersistenceAdapter) -> None:
    upstream = send(store, {})[0]
    complete(store, claim_one(store))
    dependent = send_after(store, upstream.id)
    assert (dependent.status, dependent.hold) == ("QUEUED", Hold.READY)
    failed = send(store, {})[0]
    claims = claims_by_job(store)
    fail(store, claims[failed.id])
    assert send_after(store, failed.id).status == "CANCELLED"
    assert send_after(store, failed.id, on_upstream="skip").status == "SKIPPED"
    assert send_after(store, failed.id, on_upstream="run").hold is Hold.READY


@pytest.mark.rule("DEP-01")
def test_a_delay_of_its_own_still_counts_after_the_dependencies(store: PersistenceAdapter, clock: ManualClock) -> None:
    upstream = send(store, {})[0]
    dependent = send_after(store, upstream.id, delay_s=60)
    complete(store, claim_one(store))
    assert look(store, dependent.id).hold is Hold.DELAYED
    assert claim_all(store) == []
    clock.advance(61)
    assert ids_of(claim_all(store)) == [dependent.id]


@pytest.mark.rule("DEP-01")
def test_a_job_cancelled_while_it_runs_has_ended_when_its_handler_has(store: PersistenceAdapter) -> None:
    upstream = send(store, {})[0]
    taken = claim_one(store)
    before = send_after(store, upstream.id, on_upstream="run")
    cancel(store, upstream.id)
    after = send_after(store, upstream.id, on_upstream="run")
    assert [look(store, item.id).hold for item in (before, after)] == [Hold.BLOCKED, Hold.BLOCKED]
    complete(store, taken)
    assert [look(store, item.id).hold for item in (before, after)] == [Hold.READY, Hold.READY]


Ends = Callable[[PersistenceAdapter, Claim], object]


@pytest.mark.rule("DEP-02")
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (fail, "upstream failed"),
        (skip, "upstream skipped"),
        (lambda store, taken: cancel(store, job_of_claim(taken).id) and complete(store, taken), "upstream cancelled"),
    ],
    ids=["fail", "skip", "cancel"],
)
def test_a_bad_end_goes_down_the_whole_graph_at_once(store: PersistenceAdapter, end: Ends, reason: str) -> None:
    upstream = send(store, {})[0]
    other = send(store, {"delay_s": 1000})[0]
    child = send_after(store, upstream.id, other.id, webhook_url="http://127.0.0.1:1/hook")
    grandchild = send_after(store, child.id)
    skipped = send_after(store, child.id, on_upstream="skip")
    below_skipped = send_after(store, skipped.id)
    cleanup = send_after(store, grandchild.id, below_skipped.id, on_upstream="run")
    end(store, claim_one(store))
    jobs = {"child": child, "grandchild": grandchild, "skipped": skipped, "below": below_skipped, "cleanup": cleanup}
    ends = {name: look(store, job.id) for name, job in jobs.items()}
    assert {name: (job.status, job.cancel_reason) for name, job in ends.items()} == {
        "child": ("CANCELLED", reason),
        "grandchild": ("CANCELLED", "upstream cancelled"),
        "skipped": ("SKIPPED", "upstream cancelled"),
        "below": ("CANCELLED", "upstream skipped"),
        "cleanup": ("QUEUED", None),
    }
    assert ends["cleanup"].hold is Hold.READY
    assert (ends["child"].run, ends["skipped"].run and ends["skipped"].run.status) == (None, "SKIPPED")
    assert rows(store, "SELECT event FROM deliveries") == [("job.cancelled",)]
    reasons = {row[0]: row[3] or "" for row in events_of(store, "job.cancelled")}
    assert upstream.id in reasons[child.id]
    assert child.id in reasons[grandchild.id]


@pytest.mark.rule("DEP-01", "DEP-02")
@pytest.mark.parametrize("is_good", [True, False])
def test_a_group_can_be_waited_for_and_a_dependent_can_be_a_member(store: PersistenceAdapter, is_good: bool) -> None:
    group, members = make_group(store, GroupMode.PARALLEL, OnFailure.CONTINUE, 2)
    dependent = send(store, {"after": [{"group_id": group.id, "as": "parts"}]})[0]
    submissions = [
        Submission.read({"type": "noop", "after": [{"job_id": dependent.id}]}),
        Submission.read({"type": "noop", "delay_s": 100}),
    ]
    second, second_members = store.write_sync(submit_group, None, GroupMode.SEQUENTIAL, OnFailure.STOP, submissions)
    last = send(store, {"after": [{"group_id": second.id}], "on_upstream": "skip"})[0]
    assert [job.hold for job in second_members] == [Hold.BLOCKED, Hold.GATED]
    claims = claims_by_job(store)
    complete(store, claims[members[0].id], {"page": 1})
    assert look(store, dependent.id).hold is Hold.BLOCKED
    if is_good:
        complete(store, claims[members[1].id], {"page": 2})
        assert look(store, dependent.id).hold is Hold.READY
        assert store.read_sync(upstream_results, dependent.id) == [
            {"name": "parts", "id": group.id, "status": "COMPLETED", "result": [{"page": 1}, {"page": 2}]}
        ]
        return
    cancel(store, members[1].id)
    fail(store, claims[members[1].id])
    assert look(store, dependent.id).status == "CANCELLED"
    assert look_at_group(store, second.id)[0].status == "CANCELLED"
    assert [look(store, job.id).status for job in second_members] == ["CANCELLED", "CANCELLED"]
    assert look(store, last.id).status == "SKIPPED"


@pytest.mark.rule("DEP-04")
def test_a_later_member_of_a_sequential_group_has_no_dependencies_of_its_own(store: PersistenceAdapter) -> None:
    upstream = send(store, {})[0]
    requests: list[dict[str, Any]] = [{"type": "noop"}, {"type": "noop", "after": [{"job_id": upstream.id}]}]
    with pytest.raises(Invalid) as refusal:
        store.write_sync(
            submit_group, None, GroupMode.SEQUENTIAL, OnFailure.STOP, [Submission.read(request) for request in requests]
        )
    assert (refusal.value.code, refusal.value.field) == ("two_orders", "jobs[1].after")
    assert count(store, "jobs") == 1


@pytest.mark.rule("DEP-03", "DEP-04")
def test_a_batch_links_its_jobs_by_ref_and_results_are_read_by_name(store: PersistenceAdapter) -> None:
    crawl, index, report = send(
        store,
        {"ref": "crawl"},
        {"ref": "index", "after": [{"ref": "crawl", "as": "pages"}]},
        {"after": [{"ref": "crawl", "as": "pages"}, {"ref": "index"}]},
    )
    assert [job.hold for job in (crawl, index, report)] == [Hold.READY, Hold.BLOCKED, Hold.BLOCKED]
    complete(store, claim_one(store), ["a", "b"])
    assert store.read_sync(upstream_results, index.id) == [
        {"name": "pages", "id": crawl.id, "status": "COMPLETED", "result": ["a", "b"]}
    ]
    complete(store, claim_one(store), 2)
    assert [entry["result"] for entry in store.read_sync(upstream_results, report.id)] == [["a", "b"], 2]


@pytest.mark.rule("DEP-04")
@pytest.mark.parametrize(
    ("after", "code"),
    [
        ([{"ref": "later"}], "unknown_ref"),
        ([{"ref": "itself"}], "unknown_ref"),
        ([{"job_id": "01890a5d-ac96-774b-bcce-b302099a8057"}], "unknown_upstream"),
        ([{"group_id": "01890a5d-ac96-774b-bcce-b302099a8057"}], "unknown_upstream"),
    ],
)
def test_a_batch_that_names_what_is_not_there_stores_nothing(
    store: PersistenceAdapter, after: list[dict[str, str]], code: str
) -> None:
    with pytest.raises(HoldbeatError) as refusal:
        send(store, {"ref": "first"}, {"ref": "itself", "after": after}, {"ref": "later"})
    assert refusal.value.code == code
    assert str(refusal.value.field).startswith("jobs[1].after[0].")
    assert (count(store, "jobs"), count(store, "dependencies")) == (0, 0)


@pytest.mark.rule("DEP-04", "QUE-01")
def test_a_batch_that_is_sent_again_is_linked_once(store: PersistenceAdapter) -> None:
    batch: tuple[dict[str, Any], ...] = (
        {"ref": "a", "idempotency_key": "a"},
        {"after": [{"ref": "a"}], "idempotency_key": "b"},
    )
    first, again = send(store, *batch), send(store, *batch)
    assert [job.id for job in first] == [job.id for job in again]
    third = send(store, batch[0], {"after": [{"ref": "a"}]})[1]
    assert third.after[0].upstream_id == first[0].id
    assert count(store, "dependencies") == 2


@pytest.mark.rule("DEP-01")
def test_a_manual_retry_waits_for_what_its_chain_still_depends_on(store: PersistenceAdapter) -> None:
    good, bad = send(store, {}, {})
    dependent = send_after(store, good.id, bad.id)
    claims = claims_by_job(store)
    fail(store, claims[bad.id])
    assert look(store, dependent.id).status == "CANCELLED"
    retry = store.write_sync(retry_job, dependent.id)
    assert retry.hold is Hold.BLOCKED
    complete(store, claims[good.id], "good")
    assert look(store, retry.id).hold is Hold.READY
    assert [entry["result"] for entry in store.read_sync(upstream_results, retry.chain_id)] == ["good", None]


@pytest.mark.rule("DEP-02", "DEP-03")
@pytest.mark.parametrize("again", [retry_job, rerun_job])
def test_a_retry_by_hand_reads_the_result_of_an_upstream_that_was_retried_by_hand(
    store: PersistenceAdapter, again: Callable[[Transaction, str], Job]
) -> None:
    upstream = send(store, {})[0]
    dependent = send_after(store, upstream.id)
    fail(store, claims_by_job(store)[upstream.id])
    second = store.write_sync(again, upstream.id)
    fail(store, claims_by_job(store)[second.id])
    third = store.write_sync(again, second.id)
    settle_as(store, claims_by_job(store)[third.id], Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, 0),)))
    retry = store.write_sync(retry_job, dependent.id)
    assert [(entry["status"], entry["result"]) for entry in store.read_sync(upstream_results, retry.chain_id)] == [
        ("FAILED", None)
    ]
    claims = {job_of_claim(taken).chain_id: taken for taken in claims_by_job(store).values()}
    complete(store, claims[third.chain_id], "mended")
    assert store.read_sync(upstream_results, retry.chain_id) == [
        {"name": None, "id": upstream.id, "status": "COMPLETED", "result": "mended"}
    ]


@pytest.mark.rule("DEP-01")
def test_an_upstream_that_ends_while_a_dependent_is_stored_opens_it(
    store: PersistenceAdapter, open_store: OpenStore
) -> None:
    upstream = send(store, {})[0]
    taken = claim_one(store)
    other = open_store()
    with HeldOpen(store, settle, [settlement(taken, Outcome.completed())]) as held:
        waiting = in_background(lambda: send_after(other, upstream.id))
        held.commit()
    assert look(store, waiting.result(30).id).hold is Hold.READY
    upstream = send(store, {})[0]
    claims = claims_by_job(store)
    submission = Submission.read({"type": "noop", "after": [{"job_id": upstream.id}]})
    with HeldOpen(store, submit, [submission]) as held:
        ending = in_background(lambda: complete(other, claims[upstream.id]))
        dependent = held.commit().jobs[0]
    ending.result(30)
    assert look(store, dependent.id).hold is Hold.READY


@pytest.mark.rule("DEP-01")
def test_two_last_ends_held_open_together_open_the_dependent(store: PersistenceAdapter, open_store: OpenStore) -> None:
    first, second = send(store, {}, {})
    dependent = send_after(store, first.id, second.id)
    claims = claims_by_job(store)
    other = open_store()
    with HeldOpen(store, settle, [settlement(claims[first.id], Outcome.completed())]) as held:
        ending = in_background(lambda: complete(other, claims[second.id]))
        held.commit()
    ending.result(30)
    assert look(store, dependent.id).hold is Hold.READY


@pytest.mark.rule("DEP-01")
@pytest.mark.timeout(600)
def test_two_last_ends_at_the_same_instant_open_the_dependent_once_a_thousand_times(
    store: PersistenceAdapter, open_store: OpenStore
) -> None:
    other = open_store()
    for _ in range(4):
        requests: list[dict[str, Any]] = []
        for number in range(250):
            names = {"ref": f"a{number}"}, {"ref": f"b{number}"}
            requests += [*names, {"after": [*names]}]
        jobs = send(store, *requests)
        trios = [jobs[start : start + 3] for start in range(0, len(jobs), 3)]
        claims = claims_by_job(store)
        verdicts = in_step(
            [partial(complete, store, claims[first.id]) for first, _, _ in trios],
            [partial(complete, other, claims[second.id]) for _, second, _ in trios],
        )
        assert set(verdicts[0]) == set(verdicts[1]) == {"accepted"}
        opened = claim_all(store)
        assert sorted(ids_of(opened)) == sorted(dependent.id for _, _, dependent in trios)
        store.write_sync(settle, [settlement(taken, Outcome.completed()) for taken in opened])


@pytest.mark.rule("DEP-06")
def test_fan_out_and_fan_in_are_one_transaction_each(store: PersistenceAdapter) -> None:
    root = send(store, {})[0]
    pages = send(store, *[{"after": [{"job_id": root.id}]} for _ in range(500)])
    report = send_after(store, *[page.id for page in pages])
    complete(store, claim_one(store))
    claims = claims_by_job(store)
    assert claims.keys() == {page.id for page in pages}
    settlements = [settlement(taken, Outcome.completed(number)) for number, taken in enumerate(claims.values())]
    store.write_sync(settle, settlements[:-1])
    assert claim_all(store) == []
    store.write_sync(settle, settlements[-1:])
    assert ids_of(claim_all(store)) == [report.id]
    assert sorted(entry["result"] for entry in store.read_sync(upstream_results, report.id)) == list(range(500))


@pytest.mark.rule("DEP-03", "QUE-07")
def test_retention_spares_what_an_unfinished_job_may_read(store: PersistenceAdapter, clock: ManualClock) -> None:
    upstream = send(store, {})[0]
    dependent = send_after(store, upstream.id, delay_s=1_000_000)
    complete(store, claim_one(store), "kept")
    clock.advance(900_000)
    store.write_sync(prune, clock.now())
    assert store.read_sync(upstream_results, dependent.id)[0]["result"] == "kept"
    clock.advance(200_000)
    complete(store, claim_one(store))
    clock.advance(10_000)
    store.write_sync(prune, clock.now())
    assert (count(store, "jobs"), count(store, "dependencies")) == (0, 0)


@pytest.mark.rule("DEP-01")
def test_jobs_without_retry_policy_defaults_still_depend_on_the_last_attempt(store: PersistenceAdapter) -> None:
    upstream = enqueue_one(store, retry_policy=RetryPolicy(max_attempts=2, base_delay_s=0))
    dependent = send_after(store, upstream.id)
    for _ in range(2):
        fail(store, claim_one(store))
        assert look(store, dependent.id).hold is Hold.BLOCKED
    fail(store, claim_one(store))
    assert look(store, dependent.id).cancel_reason == "upstream failed"


@pytest.mark.rule("DEP-05")
def test_explain_names_what_a_job_waits_for_and_whose_end_ended_it(store: PersistenceAdapter) -> None:
    first, second = send(store, {}, {})
    dependent = send(store, {"after": [{"job_id": first.id, "as": "pages"}, {"job_id": second.id}]})[0]
    claims = claims_by_job(store)
    explanation = store.read_sync(explain_job, dependent.id)
    assert explanation["reasons"][0]["code"] == "upstream"
    assert f"job {first.id} (pages), which is running and job {second.id}" in explanation["summary"]
    complete(store, claims[first.id])
    explanation = store.read_sync(explain_job, dependent.id)
    assert explanation["reasons"][0]["waits_for"] == [{"job_id": second.id}]
    assert "1 of 2 have ended" in explanation["summary"]
    fail(store, claims[second.id])
    explanation = store.read_sync(explain_job, dependent.id)
    assert f"It depended on job {second.id}, which failed." in explanation["summary"]


@pytest.mark.rule("WAIT-01", "WAIT-06", "DEP-01")
def test_what_waits_without_a_slot_is_counted_by_what_it_waits_for(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    none = {"sleep": 0, "signal": 0, "question": 0, "child": 0, "upstream": 0}
    first = enqueue_one(store, not_before=clock.now() + timedelta(hours=2))
    for _ in range(2):
        send_after(store, first.id)
    assert store.read_sync(wait_counts) == {**none, "upstream": 2}
    sleep, short_sleep = (Outcome.continued((Wait(WaitKind.SLEEP, "$sleep", None, s),)) for s in (3600.0, 60.0))
    signal = Outcome.continued((Wait(WaitKind.SIGNAL, "$signal:go", None, 3600.0, "go", 1),))
    child = Outcome.continued((Wait(WaitKind.CHILD, "$child:noop", name=first.id),))
    for outcome in (sleep, short_sleep, signal, signal, child):
        enqueue_one(store)
        settle_as(store, claim_one(store), outcome)
    expected = {**none, "sleep": 2, "signal": 2, "child": 1, "upstream": 2}
    assert store.read_sync(wait_counts) == store.read_sync(stats)["waits"] == expected
    assert counted_waits(expected) == ["2 sleep", "2 wait for a signal", "1 waits for a child", "2 wait for other jobs"]
    clock.advance(61)
    assert store.read_sync(wait_counts) == {**expected, "sleep": 1}, "it waits for a slot now"
    cancel(store, first.id)
    assert store.read_sync(wait_counts) == {**expected, "sleep": 1, "upstream": 0}
