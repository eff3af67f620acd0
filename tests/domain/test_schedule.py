"""A schedule is one consistent whole after every create and every edit, and its due times are its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdbeat.domain.cron import Dst
from holdbeat.domain.endpoint import EndpointCall
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import RetryPolicy
from holdbeat.domain.schedule import INDEFINITE, CatchUp, Overlap, Schedule, job_for, validate
from holdbeat.domain.schedule_edit import created, edited

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PLAIN: dict[str, Any] = {"name": "nightly", "type": "report", "cron": "0 3 * * *"}
ADAPTIVE: dict[str, Any] = {"name": "watch", "type": "probe", "interval_s": 60, "adaptive": True}
ENDPOINT: dict[str, Any] = {"name": "ping", "url": "https://example.org/ping", "interval_s": 60}


def plain(**more: Any) -> Schedule:
    return created("s1", {**PLAIN, **more}, NOW)


def adaptive(**more: Any) -> Schedule:
    return created("s1", {**ADAPTIVE, **more}, NOW)


def endpoint(**more: Any) -> Schedule:
    return created("s1", {**ENDPOINT, **more}, NOW, endpoint=True)


def refusal(call: Any, *arguments: Any, **named: Any) -> Invalid:
    with pytest.raises(Invalid) as caught:
        call(*arguments, **named)
    assert caught.value.detail.endswith(".")
    return caught.value


@pytest.mark.rule("TIME-09")
def test_a_plain_schedule_has_the_documented_defaults() -> None:
    schedule = plain()
    assert (schedule.timezone, schedule.dst, schedule.jitter_s) == ("UTC", Dst.VIXIE, 0)
    assert (schedule.catch_up, schedule.catch_up_limit, schedule.overlap) == (CatchUp.LATEST, 100, Overlap.ALLOW)
    assert schedule.enabled and not schedule.adaptive and schedule.version == 1


@pytest.mark.rule("TIME-09")
def test_an_adaptive_schedule_skips_overlaps_without_being_told() -> None:
    assert adaptive().overlap is Overlap.SKIP
    assert endpoint().adaptive


@pytest.mark.parametrize(
    ("given", "code", "field"),
    [
        ({"interval_s": 60}, "cron_or_interval", "interval_s"),
        ({"cron": None}, "cron_or_interval", "cron"),
        ({"cron": "61 * * * *"}, "invalid_cron", "cron"),
        ({"cron": None, "interval_s": 0}, "out_of_range", "interval_s"),
        ({"cron": None, "interval_s": 0.5}, "out_of_range", "interval_s"),
        ({"cron": None, "interval_s": -60}, "out_of_range", "interval_s"),
        ({"cron": None, "interval_s": float("nan")}, "out_of_range", "interval_s"),
        ({"cron": None, "interval_s": float("inf")}, "out_of_range", "interval_s"),
        ({"cron": None, "interval_s": 10**30}, "out_of_range", "interval_s"),
        ({"cron": None, "interval_s": True}, "out_of_range", "interval_s"),
        ({"cron": None, "interval_s": "60"}, "out_of_range", "interval_s"),
        ({"cron": None, "interval_s": 60, "jitter_s": 61}, "jitter_exceeds_interval", "jitter_s"),
        ({"jitter_s": -1}, "out_of_range", "jitter_s"),
        ({"jitter_s": 3601}, "out_of_range", "jitter_s"),
        ({"jitter_s": float("nan")}, "out_of_range", "jitter_s"),
        ({"timezone": "Mars/Olympus"}, "unknown_timezone", "timezone"),
        ({"dst": "sometimes"}, "unknown_choice", "dst"),
        ({"catch_up": "some"}, "unknown_choice", "catch_up"),
        ({"catch_up_limit": 0}, "out_of_range", "catch_up_limit"),
        ({"catch_up_limit": 10_001}, "out_of_range", "catch_up_limit"),
        ({"overlap": "maybe"}, "unknown_choice", "overlap"),
        ({"overlap": None}, "missing_field", "overlap"),
        ({"start_at": NOW, "end_at": NOW}, "start_after_end", "end_at"),
        ({"start_at": "yesterday"}, "invalid_instant", "start_at"),
        ({"start_at": datetime(2026, 1, 1)}, "invalid_instant", "start_at"),  # noqa: DTZ001
        ({"end_at": INDEFINITE}, "invalid_instant", "end_at"),
        ({"name": ""}, "invalid_text", "name"),
        ({"name": "   "}, "invalid_text", "name"),
        ({"name": "x" * 201}, "invalid_text", "name"),
        ({"name": "a\nb"}, "invalid_text", "name"),
        ({"name": "resume"}, "reserved_name", "name"),
        ({"name": "preview"}, "reserved_name", "name"),
        ({"name": "a\x00b"}, "invalid_text", "name"),
        ({"name": "a\ud800b"}, "invalid_text", "name"),
        ({"type": None}, "missing_type", "type"),
        ({"template_id": "t1"}, "ambiguous_type", "type"),
        ({"priority": 101}, "out_of_range", "priority"),
        ({"priority": 1.5}, "out_of_range", "priority"),
        ({"timeout_s": 0}, "out_of_range", "timeout_s"),
        ({"retry_policy": {"attempts": 3}}, "unknown_field", "retry_policy.attempts"),
        ({"retry_policy": {"base_delay_s": float("nan")}}, "out_of_range", "retry_policy.base_delay_s"),
        ({"params": [1]}, "invalid_params", "params"),
        ({"labels": {"a": 1}}, "invalid_text", "labels.a"),
        ({"enabled": "yes"}, "invalid_flag", "enabled"),
        ({"paused_until": NOW}, "unknown_field", "paused_until"),
        ({"next_run_at": NOW}, "unknown_field", "next_run_at"),
        ({"url": "https://example.org"}, "unknown_field", "url"),
    ],
)
@pytest.mark.rule("TIME-09", "DEC-010")
def test_a_schedule_that_cannot_work_is_refused_with_the_field_named(
    given: dict[str, Any], code: str, field: str
) -> None:
    error = refusal(plain, **given)
    assert (error.code, error.field) == (code, field)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"min_interval_s": 10}, "min_interval_s"),
        ({"max_interval_s": 10}, "max_interval_s"),
    ],
)
@pytest.mark.rule("TIME-09")
def test_clamps_are_refused_on_a_schedule_that_does_not_adapt(given: dict[str, Any], field: str) -> None:
    error = refusal(plain, **given)
    assert (error.code, error.field) == ("not_adaptive", field)


@pytest.mark.rule("TIME-09")
def test_hints_are_refused_on_a_schedule_that_does_not_adapt() -> None:
    schedule = plain()
    schedule.hint_interval_s = 5
    assert refusal(validate, schedule).code == "not_adaptive"


@pytest.mark.parametrize("overlap", ["allow", "queue_one", "cancel_previous"])
@pytest.mark.rule("TIME-09")
def test_an_adaptive_schedule_refuses_every_overlap_but_skip(overlap: str) -> None:
    assert refusal(adaptive, overlap=overlap).code == "adaptive_overlap"


@pytest.mark.parametrize("catch_up", ["none", "all"])
@pytest.mark.rule("TIME-03")
def test_an_adaptive_schedule_refuses_every_catch_up_but_latest(catch_up: str) -> None:
    assert refusal(adaptive, catch_up=catch_up).code == "adaptive_catch_up"


@pytest.mark.rule("GOV-06")
def test_an_edit_of_one_clamp_is_checked_against_the_other_that_is_stored() -> None:
    schedule = adaptive(min_interval_s=60, max_interval_s=120)
    assert refusal(edited, schedule, {"max_interval_s": 30}).code == "min_exceeds_max"
    assert refusal(edited, schedule, {"min_interval_s": 121}).code == "min_exceeds_max"
    assert edited(schedule, {"min_interval_s": 120}).min_interval_s == 120


clamp = st.none() | st.floats(1, 5000) | st.sampled_from([0.0, -1.0, float("nan"), 1e12])


@given(st.lists(st.fixed_dictionaries({}, optional={"min_interval_s": clamp, "max_interval_s": clamp}), max_size=8))
@pytest.mark.rule("GOV-06")
def test_no_row_of_edits_ever_leaves_min_above_max(edits: list[dict[str, Any]]) -> None:
    schedule = adaptive()
    for changes in edits:
        try:
            schedule = edited(schedule, changes)
        except Invalid:
            continue
        low, high = schedule.min_interval_s, schedule.max_interval_s
        assert low is None or high is None or low <= high
        validate(schedule)


@pytest.mark.rule("TIME-09")
def test_an_edit_never_leaves_cron_and_interval_both_set() -> None:
    schedule = plain()
    switched = edited(schedule, {"interval_s": 60})
    assert (switched.cron, switched.interval_s) == (None, 60)
    back = edited(switched, {"cron": "*/5 * * * *", "interval_s": None})
    assert (back.cron, back.interval_s) == ("*/5 * * * *", None)
    assert edited(switched, {"cron": "@daily"}).interval_s is None
    assert refusal(edited, schedule, {"cron": "@daily", "interval_s": 60}).code == "cron_or_interval"
    assert refusal(edited, schedule, {"cron": None}).code == "cron_or_interval"
    assert schedule == plain(), "the schedule that was edited stays as it was"


def test_a_template_takes_the_place_of_the_type_and_back() -> None:
    schedule = edited(plain(), {"template_id": "t1"})
    assert (schedule.type, schedule.template_id) == (None, "t1")
    assert edited(schedule, {"type": "other"}).template_id is None
    assert refusal(edited, schedule, {"type": "other", "template_id": "t2"}).code == "ambiguous_type"


@pytest.mark.rule("API-02")
def test_an_edit_of_an_unknown_field_is_refused_and_changes_nothing() -> None:
    schedule = plain()
    error = refusal(edited, schedule, {"name": "new", "nmae": "x"})
    assert (error.code, error.field, schedule.name) == ("unknown_field", "nmae", "nightly")


@pytest.mark.rule("TIME-09")
def test_turning_adaptive_on_and_off_takes_its_fields_along() -> None:
    on = edited(plain(), {"adaptive": True})
    assert on.overlap is Overlap.SKIP
    assert refusal(edited, plain(overlap="queue_one"), {"adaptive": True}).code == "adaptive_overlap"
    on.hint_interval_s, on.hint_interval_expires_at, on.failure_count = 5, NOW, 3
    off = edited(on, {"adaptive": False})
    assert (off.hint_interval_s, off.hint_interval_expires_at, off.failure_count) == (None, None, 0)
    clamped = adaptive(max_interval_s=10)
    assert refusal(edited, clamped, {"adaptive": False}).field == "max_interval_s"
    assert edited(clamped, {"adaptive": False, "max_interval_s": None}).adaptive is False


def test_instants_are_kept_in_utc_with_milliseconds() -> None:
    schedule = plain(start_at="2026-03-01T14:00:00.123456+02:00")
    assert schedule.start_at == datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)


def test_params_are_a_copy_that_the_caller_cannot_reach() -> None:
    params = {"deep": {"list": [1]}}
    schedule = plain(params=params)
    params["deep"]["list"].append(2)
    assert schedule.params == {"deep": {"list": [1]}}


def test_the_job_of_a_schedule_carries_only_what_the_schedule_sets_itself() -> None:
    assert job_for(plain(priority=0, params={"a": 1}), NOW) == {
        "type": "report",
        "params": {"a": 1},
        "priority": 0,
        "schedule_name": plain().name,
        "schedule_id": "s1",
        "scheduled_for": NOW,
    }


def test_the_job_of_a_schedule_with_a_template_leaves_its_type_to_the_template() -> None:
    schedule = created("s1", {"name": "x", "template_id": "t1", "interval_s": 60}, NOW)
    assert job_for(schedule, NOW) == {
        "template_id": "t1",
        "schedule_name": "x",
        "schedule_id": "s1",
        "scheduled_for": NOW,
    }


def test_the_job_of_an_endpoint_is_a_call_that_the_queue_does_not_retry() -> None:
    schedule = endpoint(method="post", headers={"X-Key": "1"}, body={"a": 1}, timeout_s=5, max_execution_s=20)
    own = job_for(schedule, NOW)
    assert (own["type"], own["resource"], own["timeout_s"]) == ("http", "http", 20)
    assert own["retry_policy"] == RetryPolicy(max_attempts=0)
    assert own["params"] == {
        "url": "https://example.org/ping",
        "method": "POST",
        "headers": {"X-Key": "1"},
        "body": {"a": 1},
        "timeout_s": 5,
        "max_response_kb": 100,
    }


def test_a_pause_without_end_lies_behind_every_instant() -> None:
    schedule = plain()
    schedule.paused_until = INDEFINITE
    assert schedule.is_paused(NOW + timedelta(days=365_000))
    assert endpoint().endpoint == EndpointCall("https://example.org/ping")
