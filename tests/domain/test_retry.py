"""RetryController: how often, how late, and when not at all."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.errors import Invalid
from holdbeat.domain.ids import spread_of
from holdbeat.domain.job import Hold, Job, JobStatus, NewJob, RetryPolicy
from holdbeat.domain.retry import RetryController, automatic_retry, continuation, delay_s, manual_retry
from holdbeat.domain.run import COUNTED_KINDS, ErrorKind
from holdbeat.domain.waits import Wait, WaitKind

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICIES = st.builds(
    RetryPolicy,
    max_attempts=st.integers(0, 1000),
    base_delay_s=st.floats(0, 1e6),
    max_delay_s=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
)


def failed_job(policy: RetryPolicy = RetryPolicy()) -> Job:  # noqa: B008
    return Job(
        "job-1",
        "story",
        {"n": 1},
        JobStatus.FAILED,
        priority=7,
        position=300,
        resource="gpu",
        retry_policy=policy,
        created_at=NOW,
        template_id="template",
        schedule_id="schedule",
        scheduled_for=NOW,
        group_id="group",
        sequence=2,
        timeout_s=9,
        cancel_grace_s=None,
        idempotency_key="key",
        webhook_url="https://example.com",
        labels={"a": "b"},
        attempt=1,
        trace="trace",
    )


@pytest.mark.rule("RET-01")
def test_the_delays_are_10_20_40_seconds() -> None:
    waits = [RetryController.decide(failed_job(), ErrorKind.ERROR, failures, NOW).not_before for failures in (1, 2, 3)]
    assert waits == [NOW + timedelta(seconds=wait) for wait in (10, 20, 40)]


@pytest.mark.rule("RET-01")
@given(policy=POLICIES, number=st.integers(0, 5000), spread=st.floats(0, 1, exclude_max=True))
def test_no_delay_is_longer_than_the_cap_whatever_the_jitter(policy: RetryPolicy, number: int, spread: float) -> None:
    wait = delay_s(policy, number, spread=spread)
    assert 0 <= wait <= policy.max_delay_s
    assert wait >= delay_s(policy, max(0, number - 1), spread=spread)


@pytest.mark.rule("RET-01")
def test_jitter_spreads_delays_at_the_maximum_below_it() -> None:
    policy = RetryPolicy(base_delay_s=10, max_delay_s=60, jitter=0.5)
    assert [delay_s(policy, 0, spread=spread) for spread in (0, 0.5)] == [10, 12.5]
    assert [delay_s(policy, 9, spread=spread) for spread in (0, 0.5)] == [40, 50]


@pytest.mark.rule("RET-01")
@given(job_id=st.text())
def test_the_jitter_of_one_job_is_always_the_same(job_id: str) -> None:
    assert 0 <= spread_of(job_id) < 1
    assert spread_of(job_id) == spread_of(job_id)


@pytest.mark.rule("DEC-007")
@pytest.mark.parametrize(("kind", "failures"), list(product(sorted(COUNTED_KINDS), (1, 2, 3, 4, 5))))
def test_three_retries_follow_a_counted_failure_and_a_fourth_never(kind: ErrorKind, failures: int) -> None:
    assert RetryController.decide(failed_job(), kind, failures, NOW).retry is (failures <= 3)


@pytest.mark.rule("DEC-007")
@pytest.mark.parametrize("failures", [0, 3, 99])
def test_an_interrupted_run_is_tried_again_at_once_however_often_it_failed(failures: int) -> None:
    verdict = RetryController.decide(failed_job(), ErrorKind.INTERRUPTED, failures, NOW)
    assert verdict.retry
    assert verdict.not_before is None


@pytest.mark.rule("DEC-007", "RET-05")
@pytest.mark.parametrize("kind", [ErrorKind.REJECTED, ErrorKind.CANCELLED])
def test_rejected_and_cancelled_runs_are_never_retried(kind: ErrorKind) -> None:
    verdict = RetryController.decide(failed_job(), kind, 0, NOW)
    assert not verdict.retry
    assert kind in verdict.reason


@pytest.mark.rule("DEC-007")
@pytest.mark.parametrize("kind", list(ErrorKind))
def test_max_attempts_0_means_no_automatic_retry_for_any_reason(kind: ErrorKind) -> None:
    assert not RetryController.decide(failed_job(RetryPolicy(max_attempts=0)), kind, 0, NOW).retry


@pytest.mark.rule("DEC-007")
@given(policy=POLICIES, kinds=st.lists(st.sampled_from(list(ErrorKind)), max_size=40))
def test_a_chain_never_has_more_counted_retries_than_allowed(policy: RetryPolicy, kinds: list[ErrorKind]) -> None:
    counted = retries = 0
    for kind in kinds:
        counted += kind in COUNTED_KINDS
        verdict = RetryController.decide(failed_job(policy), kind, counted, NOW)
        if not verdict.retry:
            break
        retries += kind in COUNTED_KINDS
    assert retries <= policy.max_attempts


@pytest.mark.rule("RET-02")
def test_an_automatic_retry_keeps_all_but_what_makes_it_another_job() -> None:
    job = failed_job()
    retry = automatic_retry(job, NOW)
    changed = {
        "retry_of": job.id,
        "retry_kind": "auto",
        "attempt": 2,
        "not_before": NOW,
        "idempotency_key": None,
        "request_hash": None,
        "hold": None,
        "root_id": job.id,
        "waits": None,
        "after": (),
        "ref": None,
        "on_duplicate": "return",
        "actor": None,
        "max_wait_s": None,
        "expires_at": None,
    }
    for name in (field.name for field in fields(NewJob)):
        expected = changed[name] if name in changed else getattr(job, name)
        assert getattr(retry, name) == expected, name


@pytest.mark.rule("RET-04")
def test_a_manual_retry_stands_at_the_end_without_delay_and_outside_its_group() -> None:
    retry = manual_retry(failed_job())
    assert (retry.position, retry.not_before, retry.group_id, retry.sequence) == (None, None, None, None)
    assert (retry.retry_kind, retry.retry_of, retry.params) == ("manual", "job-1", {"n": 1})


@pytest.mark.rule("DEC-007")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_attempts", -1),
        ("max_attempts", 1001),
        ("base_delay_s", -1),
        ("base_delay_s", float("nan")),
        ("base_delay_s", float("inf")),
        ("max_delay_s", -0.1),
        ("max_delay_s", float("nan")),
        ("jitter", 1.5),
        ("jitter", -0.5),
    ],
)
def test_an_impossible_policy_is_refused_by_the_name_of_its_field(name: str, value: float) -> None:
    with pytest.raises(Invalid) as refusal:
        RetryPolicy(**{name: value})  # type: ignore[arg-type]
    assert refusal.value.field == f"retry_policy.{name}"


@pytest.mark.rule("WAIT-01")
def test_the_next_job_of_a_chain_has_the_place_and_the_attempt_of_the_one_that_waits() -> None:
    job = failed_job()
    sleep = Wait(WaitKind.SLEEP, "$sleep", delay_s=60)
    following = continuation(job, [sleep], NOW, is_over=False)
    same = ("type", "params", "priority", "position", "resource", "group_id", "sequence", "attempt", "labels")
    assert [getattr(following, name) for name in same] == [getattr(job, name) for name in same]
    assert (following.retry_of, following.retry_kind, following.idempotency_key) == (job.id, "continue", None)
    assert following.not_before == NOW + timedelta(seconds=60)


@pytest.mark.rule("WAIT-01")
def test_the_next_job_of_a_chain_is_ready_when_its_wait_is_over_and_held_while_that_has_no_end() -> None:
    signal = Wait(WaitKind.SIGNAL, "$signal:go", name="go", number=1)
    assert continuation(failed_job(), [signal], NOW, is_over=False).hold is Hold.WAITING
    ready = continuation(failed_job(), [signal], NOW, is_over=True)
    assert (ready.hold, ready.not_before) == (None, None)
