"""An endpoint's call is well formed, its deadlines nest, and its health tells what the runs were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdbeat.domain.endpoint import EndedRun, EndpointCall, health
from holdbeat.domain.errors import Invalid
from holdbeat.domain.schedule import Schedule
from holdbeat.domain.schedule_edit import created, edited

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def endpoint(**more: Any) -> Schedule:
    fields = {"name": "ping", "url": "https://example.org/ping", "interval_s": 60, **more}
    return created("e1", fields, NOW, endpoint=True)


@pytest.mark.parametrize(
    ("given", "code", "field"),
    [
        ({"url": "ftp://example.org"}, "invalid_url", "url"),
        ({"url": "file:///etc/passwd"}, "invalid_url", "url"),
        ({"url": "example.org"}, "invalid_url", "url"),
        ({"url": "https://"}, "invalid_url", "url"),
        ({"url": "https://example.org:99999"}, "invalid_url", "url"),
        ({"url": "https://[::1"}, "invalid_url", "url"),
        ({"url": "https://user:word@example.org"}, "invalid_url", "url"),
        ({"url": "https://example.org/a b"}, "invalid_url", "url"),
        ({"url": "https://example.org/\r\nX: 1"}, "invalid_url", "url"),
        ({"url": "https:\\\\example.org"}, "invalid_url", "url"),
        ({"url": "https://example.org/" + "a" * 2048}, "invalid_url", "url"),
        ({"url": None}, "missing_field", "url"),
        ({"method": "TRACE"}, "invalid_method", "method"),
        ({"headers": {"X Y": "1"}}, "invalid_headers", "headers"),
        ({"headers": {"X": "1\r\nInjected: 1"}}, "invalid_headers", "headers"),
        ({"headers": {"X": 1}}, "invalid_object", "headers"),
        ({"headers": {"Host": "x.example"}}, "invalid_headers", "headers"),
        ({"headers": {"content-length": "3"}}, "invalid_headers", "headers"),
        ({"headers": {"X": "Müller"}}, "invalid_headers", "headers"),
        ({"headers": {"X": " lead"}}, "invalid_headers", "headers"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "invalid_headers", "headers"),
        ({"url": "https://exa%20mple.org/"}, "invalid_url", "url"),
        ({"url": "https://1.2.3.400/"}, "invalid_url", "url"),
        ({"timeout_s": 61}, "timeout_exceeds_execution", "timeout_s"),
        ({"max_execution_s": 1801}, "out_of_range", "max_execution_s"),
        ({"max_execution_s": 20}, "timeout_exceeds_execution", "timeout_s"),
        ({"timeout_s": 0}, "out_of_range", "timeout_s"),
        ({"timeout_s": float("nan")}, "out_of_range", "timeout_s"),
        ({"max_response_kb": 0}, "out_of_range", "max_response_kb"),
        ({"max_response_kb": 100_000}, "out_of_range", "max_response_kb"),
        ({"type": "report"}, "unknown_field", "type"),
        ({"resource": "gpu"}, "unknown_field", "resource"),
        ({"adaptive": False}, "endpoint_is_adaptive", "adaptive"),
    ],
)
def test_an_endpoint_that_cannot_be_called_is_refused(given: dict[str, Any], code: str, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        endpoint(**given)
    assert (caught.value.code, caught.value.field) == (code, field)


def test_an_endpoint_has_the_documented_defaults() -> None:
    assert endpoint().endpoint == EndpointCall(
        "https://example.org/ping", "GET", {}, None, timeout_s=30, max_execution_s=60, max_response_kb=100
    )


def test_an_edit_of_one_deadline_is_checked_against_the_other_that_is_stored() -> None:
    schedule = endpoint(timeout_s=50)
    with pytest.raises(Invalid, match="must not exceed"):
        edited(schedule, {"max_execution_s": 40})
    longer = edited(schedule, {"max_execution_s": 1800, "timeout_s": 1800})
    assert longer.endpoint is not None and longer.endpoint.timeout_s == 1800
    assert longer.timeout_s is None, "the HTTP deadline is not the schedule's own timeout"
    assert schedule.endpoint is not None and schedule.endpoint.timeout_s == 50


def test_an_endpoint_may_follow_a_cron_expression() -> None:
    assert edited(endpoint(), {"cron": "*/5 * * * *"}).interval_s is None


def ran(minutes_ago: float, status: str, took_s: float = 2.0) -> EndedRun:
    end = NOW - timedelta(minutes=minutes_ago)
    return status, end - timedelta(seconds=took_s), end


@pytest.mark.rule("GOV-12")
def test_health_counts_each_window_apart() -> None:
    runs = [
        ran(10, "COMPLETED", 1),
        ran(20, "COMPLETED", 3),
        ran(90, "FAILED", 8),
        ran(300, "FAILED", 4),
        ran(1500, "COMPLETED", 100),
    ]
    figures = health(reversed(runs), NOW)
    assert figures["windows"] == {
        "1h": {"successes": 2, "failures": 0, "mean_duration_s": 2},
        "4h": {"successes": 2, "failures": 1, "mean_duration_s": 4},
        "24h": {"successes": 2, "failures": 2, "mean_duration_s": 4},
    }
    assert figures["streak"] == {"status": "COMPLETED", "length": 2}
    assert figures["last_run"] == {
        "status": "COMPLETED",
        "started_at": "2026-03-01T11:49:59.000Z",
        "finished_at": "2026-03-01T11:50:00.000Z",
        "duration_s": 1,
    }


@pytest.mark.rule("GOV-12")
def test_skipped_and_unfinished_runs_neither_count_nor_break_the_streak() -> None:
    executing: EndedRun = ("", NOW, None)
    figures = health([executing, ran(1, "SKIPPED"), ran(2, "FAILED"), ran(3, "SKIPPED"), ran(4, "FAILED")], NOW)
    assert figures["windows"]["1h"]["failures"] == 2
    assert figures["streak"] == {"status": "FAILED", "length": 2}
    assert figures["last_run"]["status"] == "SKIPPED"


@pytest.mark.rule("GOV-12")
def test_an_endpoint_that_never_ran_is_neither_well_nor_ill() -> None:
    figures = health([], NOW)
    assert figures["windows"]["24h"] == {"successes": 0, "failures": 0, "mean_duration_s": None}
    assert figures["streak"] is None and figures["last_run"] is None
