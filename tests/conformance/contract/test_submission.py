"""Submissions: defaults merged, types and params checked, batches whole."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock, iso
from holdbeat.domain.errors import Conflict, HoldbeatError, Invalid
from holdbeat.domain.group import GroupMode, OnFailure
from holdbeat.domain.job import Hold, Job, RetryPolicy
from holdbeat.domain.submission import Submission
from holdbeat.handlers.http import HTTP_PARAMS_SCHEMA
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.bulk import cancel_where
from holdbeat.store.jobs.cancel import cancel_group, cancel_job
from holdbeat.store.jobs.submit import submit, submit_group
from holdbeat.store.queue.enqueue import Enqueued
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.queue.templates import archive_template, create_template, patch_template
from holdbeat.store.running.reservations import cancel_reservation
from tests.conformance.acts import count, look
from tests.conformance.repair import ask_directly

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "text": {"type": "string"}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def types(store: PersistenceAdapter) -> None:
    store.write_sync(
        announce,
        [
            AnnouncedType("count", SCHEMA, {"resource": "cpu", "priority": 2, "timeout_s": 60.0}, ("tally",)),
            AnnouncedType("anything"),
            AnnouncedType("gentle", {}, {"cancel_grace_s": None, "retry_policy": {"max_attempts": 1}}),
        ],
    )


def send(store: PersistenceAdapter, *requests: dict[str, Any]) -> Enqueued:
    return store.write_sync(submit, [Submission.read(request) for request in requests])


def send_one(store: PersistenceAdapter, **request: Any) -> Job:
    return look(store, send(store, request).jobs[0].id)


def refused(store: PersistenceAdapter, **request: Any) -> HoldbeatError:
    before = count(store, "jobs")
    with pytest.raises(HoldbeatError) as refusal:
        send(store, request)
    assert count(store, "jobs") == before
    return refusal.value


@pytest.mark.rule("INV-005")
def test_the_nearest_layer_wins_and_params_are_merged_one_by_one(store: PersistenceAdapter) -> None:
    template = store.write_sync(
        create_template,
        {
            "name": "daily", "type": "count", "default_params": {"n": 1, "text": "template"}, "priority": 5,
            "labels": {"from": "template"}, "retry_policy": {"max_attempts": 7}, "webhook_url": "https://t.example/h",
        },
    )  # fmt: skip
    plain = send_one(store, type="count", params={"n": 9})
    assert (plain.resource, plain.priority, plain.timeout_s, plain.labels) == ("cpu", 2, 60, {})
    assert (plain.cancel_grace_s, plain.retry_policy) == (10, RetryPolicy())
    made = send_one(store, template="daily")
    assert (made.template_id, made.type, made.params) == (template.id, "count", {"n": 1, "text": "template"})
    assert (made.resource, made.priority, made.labels) == ("cpu", 5, {"from": "template"})
    assert (made.retry_policy.max_attempts, made.webhook_url) == (7, "https://t.example/h")
    own = send_one(
        store, template=template.id, params={"text": "job"}, priority=0, resource="gpu", labels={}, timeout_s=5,
        retry_policy={"base_delay_s": 1},
    )  # fmt: skip
    assert own.params == {"n": 1, "text": "job"}
    assert (own.priority, own.resource, own.labels, own.timeout_s) == (0, "gpu", {}, 5)
    assert own.retry_policy == RetryPolicy(max_attempts=7, base_delay_s=1)
    schedule = {"type": "count", "template_id": template.id, "params": {"n": 3}, "priority": 8, "schedule_id": "s"}
    fired = store.write_sync(submit, [Submission.for_schedule(schedule)]).jobs[0]
    assert (fired.params, fired.priority, fired.schedule_id) == ({"n": 3, "text": "template"}, 8, "s")
    assert fired.retry_policy.max_attempts == 7


@pytest.mark.rule("INV-005")
def test_a_job_is_a_snapshot_that_a_changed_template_does_not_reach(store: PersistenceAdapter) -> None:
    store.write_sync(create_template, {"name": "t", "type": "count", "default_params": {"n": 1}, "priority": 5})
    job = send_one(store, template="t")
    store.write_sync(patch_template, "t", {"default_params": {"n": 2}, "priority": 9})
    store.write_sync(archive_template, "t")
    assert look(store, job.id) == job


@pytest.mark.rule("EXE-01")
def test_null_means_never_kill_for_the_grace_and_nothing_elsewhere(store: PersistenceAdapter) -> None:
    assert send_one(store, type="anything", cancel_grace_s=None).cancel_grace_s is None
    assert send_one(store, type="gentle").cancel_grace_s is None
    assert send_one(store, type="gentle", cancel_grace_s=3).cancel_grace_s == 3
    job = send_one(store, type="count", params={"n": 1}, priority=None, resource=None, labels=None)
    assert (job.priority, job.resource) == (2, "cpu")


@pytest.mark.rule("QUE-06")
def test_an_unknown_type_is_refused_with_near_matches(store: PersistenceAdapter) -> None:
    error = refused(store, type="cuont")
    assert isinstance(error, Invalid)
    assert (error.code, error.field) == ("unknown_type", "type")
    assert "count" in error.detail
    assert send_one(store, type="tally", params={"n": 1}).type == "count"


@pytest.mark.rule("QUE-06")
@pytest.mark.parametrize(
    ("params", "field"), [({}, "params.n"), ({"n": "1"}, "params.n"), ({"n": 1, "txet": ""}, "params.txet")]
)
def test_params_that_do_not_fit_the_schema_are_refused(
    store: PersistenceAdapter, params: dict[str, Any], field: str
) -> None:
    error = refused(store, type="count", params=params)
    assert (error.code, error.field) == ("invalid_params", field)


@pytest.mark.rule("API-02", "SEC-06")
@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({}, "type"),
        ({"type": "anything", "colour": 1}, "colour"),
        ({"type": "anything", "priority": 101}, "priority"),
        ({"type": "anything", "priority": -1}, "priority"),
        ({"type": "anything", "priority": True}, "priority"),
        ({"type": "anything", "priority": 1.5}, "priority"),
        ({"type": "anything", "resource": "*"}, "resource"),
        ({"type": "anything", "resource": "a\nb"}, "resource"),
        ({"type": "anything", "params": [1]}, "params"),
        ({"type": "anything", "params": {"x": "\x00"}}, "params.x"),
        ({"type": "anything", "params": {"x": float("nan")}}, "params.x"),
        ({"type": "anything", "params": {"x": 2**63}}, "params.x"),
        ({"type": "anything", "delay_s": -1}, "delay_s"),
        ({"type": "anything", "delay_s": 1e300}, "delay_s"),
        ({"type": "anything", "not_before": "tomorrow"}, "not_before"),
        ({"type": "anything", "delay_s": 1, "not_before": "2026-01-01T00:00:00Z"}, "delay_s"),
        ({"type": "anything", "timeout_s": 0}, "timeout_s"),
        ({"type": "anything", "cancel_grace_s": "never"}, "cancel_grace_s"),
        ({"type": "anything", "retry_policy": {"max_attempts": -1}}, "retry_policy.max_attempts"),
        ({"type": "anything", "retry_policy": {"tries": 1}}, "retry_policy.tries"),
        ({"type": "anything", "retry_policy": {"base_delay_s": "1"}}, "retry_policy.base_delay_s"),
        ({"type": "anything", "retry_policy": 3}, "retry_policy"),
        ({"type": "anything", "labels": {"a": 1}}, "labels.a"),
        ({"type": "anything", "webhook_url": "ftp://example.org"}, "webhook_url"),
        ({"type": "anything", "webhook_url": "https://u:p@example.org"}, "webhook_url"),
        ({"type": "anything", "idempotency_key": ""}, "idempotency_key"),
        ({"type": "anything", "idempotency_key": "x" * 256}, "idempotency_key"),
        ({"type": 5}, "type"),
        ({"template": "nobody"}, "template"),
    ],
)
def test_a_field_that_does_not_fit_is_refused_by_name(
    store: PersistenceAdapter, request_: dict[str, Any], field: str
) -> None:
    error = refused(store, **request_)
    assert isinstance(error, Invalid)
    assert error.field == field


@pytest.mark.rule("SEC-06")
def test_the_merged_params_are_limited_not_only_those_sent(store: PersistenceAdapter) -> None:
    store.write_sync(create_template, {"name": "big", "type": "anything", "default_params": {"a": "x" * 200_000}})
    assert refused(store, template="big", params={"b": "x" * 200_000}).code == "params_too_large"


@pytest.mark.rule("INV-005")
def test_an_archived_template_makes_no_jobs(store: PersistenceAdapter) -> None:
    store.write_sync(create_template, {"name": "old", "type": "anything"})
    store.write_sync(archive_template, "old")
    assert isinstance(refused(store, template="old"), Conflict)


@pytest.mark.rule("QUE-06")
def test_another_type_beside_the_template_is_refused_and_the_same_or_its_alias_is_not(
    store: PersistenceAdapter,
) -> None:
    store.write_sync(create_template, {"name": "t", "type": "count", "default_params": {"n": 1}})
    assert refused(store, template="t", type="anything").code == "other_type"
    assert send_one(store, template="t", type="tally").type == "count"


def test_a_delay_counts_from_the_store_s_clock(store: PersistenceAdapter, clock: ManualClock) -> None:
    job = send_one(store, type="anything", delay_s=1.5)
    assert (job.not_before, job.hold) == (clock.now() + timedelta(seconds=1.5), Hold.DELAYED)
    at = clock.now() + timedelta(hours=1)
    assert send_one(store, type="anything", not_before=iso(at)).not_before == at


@pytest.mark.rule("QUE-01")
def test_the_same_key_and_request_find_the_same_job_and_another_request_is_refused(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    request = {"type": "anything", "params": {"a": [1, 2]}, "delay_s": 5, "idempotency_key": "k"}
    first = send(store, request)
    clock.advance(60)
    again = send(store, {**request, "priority": None})
    assert (first.any_new, again.any_new) == (True, False)
    assert first.jobs[0].id == again.jobs[0].id
    for other in ({"params": {"a": [2, 1]}}, {"delay_s": 6}, {"labels": {"x": "y"}}):
        assert isinstance(refused(store, **{**request, **other}), Conflict)


@pytest.mark.rule("QUE-01")
def test_a_job_is_found_by_its_key_although_it_could_not_be_made_today(store: PersistenceAdapter) -> None:
    store.write_sync(create_template, {"name": "t", "type": "anything"})
    by_template = {"template": "t", "idempotency_key": "t1"}
    by_type = {"type": "count", "params": {"n": 1}, "idempotency_key": "c1"}
    made = send(store, by_template, by_type)
    store.write_sync(archive_template, "t")
    store.write_sync(announce, [AnnouncedType("count", {**SCHEMA, "required": ["text"]})])
    assert send(store, by_template).jobs[0].id == made.jobs[0].id
    again = send(store, by_template, by_type, {"type": "anything", "idempotency_key": "new"})
    assert [job.id for job in again.jobs[:2]] == [job.id for job in made.jobs]
    assert again.known == {job.id for job in made.jobs}
    assert count(store, "jobs") == 3
    assert refused(store, **{**by_template, "priority": 7}).code == "idempotency_conflict"
    assert refused(store, **{**by_template, "idempotency_key": "t2"}).code == "archived"
    assert refused(store, **{**by_type, "idempotency_key": "c2"}).code == "invalid_params"


@pytest.mark.rule("QUE-02")
def test_a_batch_with_one_bad_job_stores_none_and_names_it(store: PersistenceAdapter) -> None:
    with pytest.raises(Invalid) as refusal:
        send(store, {"type": "anything"}, {"type": "count"}, {"type": "anything"})
    assert refusal.value.field == "jobs[1].params.n"
    with pytest.raises(Invalid):
        send(store)
    assert count(store, "jobs") == 0


@pytest.mark.rule("QUE-02")
@pytest.mark.asyncio
async def test_submissions_that_share_a_commit_do_not_share_their_refusals(store: PersistenceAdapter) -> None:
    requests = [{"type": "count" if number % 3 else "nothing", "params": {"n": 1}} for number in range(60)]
    results = await asyncio.gather(
        *(store.write(submit, [Submission.read(request)]) for request in requests), return_exceptions=True
    )
    bad = [result for result in results if isinstance(result, BaseException)]
    assert len(bad) == 20
    assert all(isinstance(error, Invalid) and error.code == "unknown_type" for error in bad)
    assert count(store, "jobs") == 40


@pytest.mark.rule("GRP-04")
def test_a_group_is_submitted_whole_or_not_at_all(store: PersistenceAdapter) -> None:
    good = [Submission.read({"type": "count", "params": {"n": number}}) for number in range(3)]
    group, jobs = store.write_sync(submit_group, "g", GroupMode.SEQUENTIAL, OnFailure.STOP, good)
    assert [job.sequence for job in jobs] == [0, 1, 2]
    assert [job.hold for job in jobs] == [Hold.READY, Hold.GATED, Hold.GATED]
    assert {job.group_id for job in jobs} == {group.id}
    bad = [Submission.read({"type": "count", "params": {"n": 1}}), Submission.read({"type": "count"})]
    for members in (bad, []):
        with pytest.raises(Invalid):
            store.write_sync(submit_group, None, GroupMode.PARALLEL, OnFailure.STOP, members)
    assert (count(store, "job_groups"), count(store, "jobs")) == (1, 3)


@pytest.mark.rule("QUE-01")
def test_a_group_whose_members_have_keys_is_found_again(store: PersistenceAdapter) -> None:
    def members(*keys: str, n: int = 1) -> list[Submission]:
        return [Submission.read({"type": "count", "params": {"n": n}, "idempotency_key": key}) for key in keys]

    def make(given: list[Submission]) -> str:
        return store.write_sync(submit_group, None, GroupMode.PARALLEL, OnFailure.STOP, given)[0].id

    first = make(members("a", "b"))
    assert make(members("a", "b")) == first
    for other in (members("a", "c"), members("a", "b", n=2), members("d", "d")):
        with pytest.raises(Conflict):
            make(other)
    assert count(store, "jobs") == 2


@pytest.mark.rule("QUE-01")
def test_a_group_is_found_by_its_keys_only_if_all_of_it_is_asked_for_again(store: PersistenceAdapter) -> None:
    def make(
        keys: str,
        name: str | None = "one",
        mode: GroupMode = GroupMode.SEQUENTIAL,
        on_failure: OnFailure = OnFailure.STOP,
    ) -> str:
        members = [Submission.read({"type": "anything", "idempotency_key": key}) for key in keys]
        return store.write_sync(submit_group, name, mode, on_failure, members)[0].id

    first = make("abc")
    assert make("abc") == first
    others: list[dict[str, Any]] = [
        {"name": "two"},
        {"name": None},
        {"mode": GroupMode.PARALLEL},
        {"on_failure": OnFailure.CONTINUE},
        {"keys": "ab"},
        {"keys": "acb"},
    ]
    for other in others:
        with pytest.raises(Conflict) as refusal:
            make(**{"keys": "abc", **other})
        assert refusal.value.code == "idempotency_conflict"
    assert (count(store, "job_groups"), count(store, "jobs")) == (1, 3)


@pytest.mark.rule("SEC-06")
@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "two\nlines", "x" * 501])
def test_words_that_a_store_could_not_keep_are_refused_before_it_sees_them(
    store: PersistenceAdapter, text: str
) -> None:
    member = [Submission.read({"type": "anything"})]
    with pytest.raises(Invalid):
        store.write_sync(submit_group, text, GroupMode.SEQUENTIAL, OnFailure.STOP, member)
    group, (job,) = store.write_sync(submit_group, None, GroupMode.SEQUENTIAL, OnFailure.STOP, member)
    asked = ask_directly(store)
    acts: list[tuple[Any, ...]] = [
        (cancel_job, job.id, text),
        (cancel_group, group.id, text),
        (cancel_where, {"type": "anything"}, text),
        (cancel_reservation, asked.id, text),
    ]
    for act in acts:
        with pytest.raises(Invalid) as refusal:
            store.write_sync(*act)
        assert refusal.value.field == "reason"
    assert look(store, job.id).status == "QUEUED"


@pytest.mark.rule("QUE-06")
@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"url": "nonsense"}, "params.url"),
        ({"url": "ftp://example.org/"}, "params.url"),
        ({"url": "https://example.org/", "headers": {"Host": "x"}}, "params.headers"),
        ({"url": "https://example.org/", "headers": {"X": "Müller"}}, "params.headers"),
        ({"url": "https://example.org/", "headers": {"X-A": "1", "x-a": "2"}}, "params.headers"),
    ],
)
def test_an_http_job_that_every_run_would_reject_is_refused_at_once(
    store: PersistenceAdapter, params: dict[str, Any], field: str
) -> None:
    store.write_sync(announce, [AnnouncedType("http", HTTP_PARAMS_SCHEMA)])
    assert refused(store, type="http", params=params).field == field
    send_one(store, type="http", params={"url": "http://127.0.0.1:9/", "headers": {"X-A": "1"}})
    send_one(store, type="http", params={"url": "https://example.org/", "headers": None})
