"""What an endpoint's answers and hints do to its plan, on both stores."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.domain.schedule import BOTH_HINTS
from holdbeat.domain.views import endpoint_json
from holdbeat.observe.explain_schedule import explain_schedule
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.schedules.schedules import clear_hints, patch_schedule, reset_failure_count, set_hints
from tests.conformance.acts import claim_all, complete, events_of, settle_as
from tests.conformance.schedule_acts import fire_all, make_endpoint, seen

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def answered(store: PersistenceAdapter, status: int, **headers: str) -> None:
    """Fires what is due, and ends it with that answer."""
    assert fire_all(store) == 1
    result = {"status_code": status, "headers": {name.replace("_", "-"): value for name, value in headers.items()}}
    settle_as(store, claim_all(store)[0], Outcome.failed(ErrorKind.ERROR, f"HTTP {status}", result=result))


@pytest.mark.rule("GOV-10")
@pytest.mark.parametrize(
    ("status", "value", "next_s"),
    [
        (429, "600", 60 + 600),
        (503, "600", 60 + 600),
        (429, "Thu, 01 Jan 2026 00:10:00 GMT", 600),
        (429, "5", 60 + 120),
        (500, "600", 60 + 120),
        (429, "soon", 60 + 120),
        (429, "-5", 60 + 120),
        (429, "Thu, 01 Jan 1970 00:10:00 GMT", 60 + 120),
        (429, "9" * 400, 60 + 86_400),
    ],
)
def test_the_next_call_is_not_before_the_retry_after_of_a_429_or_503(
    store: PersistenceAdapter, clock: ManualClock, status: int, value: str, next_s: float
) -> None:
    make_endpoint(store)
    clock.advance(60)
    answered(store, status, Retry_After=value)
    endpoint = seen(store, "e")
    assert endpoint.next_run_at == at(next_s) and endpoint.last_decision is not None
    is_honoured = next_s != 180
    assert ("Retry-After" in endpoint.last_decision["sentence"]) is is_honoured
    details = [reason["detail"] for reason in store.read_sync(explain_schedule, "e")["reasons"]]
    assert any("Retry-After" in detail for detail in details) is is_honoured


@pytest.mark.rule("GOV-06", "GOV-10")
def test_retry_after_holds_for_hints_and_edits_within_the_max_clamp_until_a_reset_or_a_run(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    make_endpoint(store)
    clock.advance(60)
    answered(store, 429, retry_after="600")
    store.write_sync(set_hints, "e", interval_s=1)
    assert seen(store, "e").next_run_at == at(660)
    store.write_sync(patch_schedule, "e", {"max_interval_s": 300})
    assert seen(store, "e").next_run_at == at(360), "never further than the max clamp"
    store.write_sync(patch_schedule, "e", {"max_interval_s": None})
    store.write_sync(clear_hints, "e")
    assert seen(store, "e").next_run_at == at(660)
    store.write_sync(reset_failure_count, "e")
    assert seen(store, "e").next_run_at == at(120)
    clock.advance(60)
    answered(store, 503, retry_after="600")
    clock.advance(600)
    assert fire_all(store) == 1
    complete(store, claim_all(store)[0])
    assert seen(store, "e").next_run_at == at(780), "an answer without the header ends the wait"


@pytest.mark.rule("GOV-03")
@pytest.mark.parametrize("is_in_flight", [False, True])
def test_both_hints_at_once_are_warned_about_in_the_answer_in_explain_and_in_the_log(
    store: PersistenceAdapter, clock: ManualClock, is_in_flight: bool
) -> None:
    make_endpoint(store)
    if is_in_flight:
        clock.advance(60)
        fire_all(store)
    hinted = store.write_sync(set_hints, "e", interval_s=10)
    assert endpoint_json(hinted)["warnings"] == []
    hinted = store.write_sync(set_hints, "e", next_run_at=at(500))
    assert endpoint_json(hinted)["warnings"] == [BOTH_HINTS]
    explained: dict[str, Any] = store.read_sync(explain_schedule, "e")
    assert explained["warnings"] == [BOTH_HINTS]
    assert BOTH_HINTS in [reason["detail"] for reason in explained["reasons"] if reason["code"] == "warning"]
    store.write_sync(set_hints, "e", interval_s=20)
    [warned] = events_of(store, "schedule.warned")
    assert json.loads(warned[3])["warning"] == BOTH_HINTS, "once for each time that it comes about"
    assert endpoint_json(store.write_sync(clear_hints, "e"))["warnings"] == []
