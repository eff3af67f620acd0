"""What can be read about schedules: lists, due times, previews, states and health."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.schedules.endpoints import endpoint_health
from holdbeat.store.schedules.schedule_reports import (
    list_schedules,
    occurrences_of,
    preview_schedule,
    preview_timetable,
    schedule_facts,
)
from holdbeat.store.schedules.schedules import (
    disable_schedule,
    pause_schedule,
)
from tests.conformance.acts import claim_one, complete, fail
from tests.conformance.schedule_acts import (
    fire,
    make,
    make_adaptive,
    make_endpoint,
    seen,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.rule("API-03")
def test_lists_go_page_by_page_and_know_their_filters(store: PersistenceAdapter) -> None:
    for number in range(7):
        make(store, f"s{number}", enabled=number % 2 == 0)
    make_endpoint(store)
    collected: list[str] = []
    cursor = None
    while True:
        page = store.read_sync(list_schedules, limit=3, cursor=cursor)
        collected += [item.name for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert collected == [f"s{number}" for number in range(6, -1, -1)]
    assert [e.name for e in store.read_sync(list_schedules, {"enabled": False}).items] == ["s5", "s3", "s1"]
    assert [e.name for e in store.read_sync(list_schedules, endpoint=True).items] == ["e"]
    assert len(store.read_sync(list_schedules, {"type": "noop"}, endpoint=None).items) == 7
    store.write_sync(pause_schedule, "s0", None, None)
    assert [e.name for e in store.read_sync(list_schedules, {"paused": True}).items] == ["s0"]
    assert len(store.read_sync(list_schedules, {"paused": False}).items) == 6
    with pytest.raises(Invalid, match="There is no filter"):
        store.read_sync(list_schedules, {"colour": "red"})


@pytest.mark.rule("API-03", "TIME-02")
def test_occurrences_are_listed_latest_first_and_by_status(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, overlap="skip")
    for _ in range(5):
        clock.advance(60)
        fire(store)
    first = store.read_sync(occurrences_of, "s", limit=2)
    second = store.read_sync(occurrences_of, "s", limit=2, cursor=first.next_cursor)
    assert [item.due_at for item in [*first.items, *second.items]] == [
        START + timedelta(seconds=60 * number) for number in (5, 4, 3, 2)
    ]
    assert [item.status for item in store.read_sync(occurrences_of, schedule.id, {"status": "fired"}).items] == [
        "fired"
    ]
    with pytest.raises(Invalid):
        store.read_sync(occurrences_of, "s", {"status": "lost"})
    with pytest.raises(Invalid, match="cursor"):
        store.read_sync(occurrences_of, "s", {"status": "fired"}, cursor=first.next_cursor)


@pytest.mark.rule("TIME-08")
def test_a_preview_marks_gaps_and_folds_before_and_after_saving(store: PersistenceAdapter) -> None:
    make(store, cron="30 2 * * *", timezone="Europe/Berlin", start_at="2026-03-28T00:00:00Z")
    saved = store.read_sync(preview_schedule, "s", 3)
    assert [fire.note for fire in saved] == [None, "gap", None]
    unsaved = store.read_sync(
        preview_timetable, {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "after": "2026-10-24T12:00:00Z", "n": 2}
    )
    assert [fire.note for fire in unsaved] == ["fold", None]
    assert len(store.read_sync(preview_timetable, {"interval_s": 60})) == 10
    for wrong in ({"cron": "* * * * *", "dst": "x"}, {}, {"interval_s": 60, "n": 0.5}):
        with pytest.raises(Invalid):
            store.read_sync(preview_timetable, wrong)


@pytest.mark.rule("TIME-08", "SEC-06")
@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"interval_s": 0}, "interval_s"),
        ({"interval_s": -5, "n": 2}, "interval_s"),
        ({"interval_s": float("nan")}, "interval_s"),
        ({"interval_s": 1e300}, "interval_s"),
        ({"interval_s": "x"}, "interval_s"),
        ({"cron": "0 0 * * *", "n": 0}, "n"),
        ({"cron": "0 0 * * *", "n": True}, "n"),
        ({"cron": "0 0 * * *", "n": 1001}, "n"),
        ({"cron": "0 0 * * *", "timezone": ""}, "timezone"),
        ({"cron": "0 0 * * *", "dst": ""}, "dst"),
        ({"cron": "0 0 * * 5-1"}, "cron"),
    ],
)
def test_a_preview_of_nonsense_is_refused_and_names_its_field(
    store: PersistenceAdapter, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        store.read_sync(preview_timetable, given)
    assert refusal.value.field == field


@pytest.mark.rule("GOV-08")
def test_a_schedule_is_in_one_state(store: PersistenceAdapter, clock: ManualClock) -> None:
    make(store, "plain")
    make_adaptive(store, "a")
    assert store.read_sync(schedule_facts, "plain").state == "planned"
    clock.advance(60)
    fire(store)
    busy = store.read_sync(schedule_facts, "a")
    assert busy.state == "in_flight" and len(busy.in_flight) == 1 and busy.latest[0].status == "fired"
    store.write_sync(pause_schedule, "plain", None, "holiday")
    assert store.read_sync(schedule_facts, "plain").state == "paused"
    store.write_sync(disable_schedule, "plain")
    assert store.read_sync(schedule_facts, "plain").state == "disabled"
    make(store, "over", end_at="2026-01-01T00:00:30Z")
    assert store.read_sync(schedule_facts, "over").state == "over"


@pytest.mark.rule("GOV-12")
def test_health_counts_the_runs_of_one_four_and_twenty_four_hours(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    endpoint = make_endpoint(store, interval_s=1800, max_interval_s=1800)
    make_endpoint(store, "other", interval_s=1800)
    store.write_sync(disable_schedule, "other")
    for number in range(12):
        moment = seen(store, "e").next_run_at
        assert moment is not None
        clock.advance((moment - clock.now()).total_seconds())
        fire(store)
        taken = claim_one(store, http=1)
        clock.advance(2)
        if number < 9:
            complete(store, taken)
        else:
            fail(store, taken)
    result = store.read_sync(endpoint_health, "e")
    assert result["streak"] == {"status": "FAILED", "length": 3} and result["failure_count"] == 3
    assert result["windows"]["1h"] == {"successes": 0, "failures": 2, "mean_duration_s": 2.0}
    assert result["windows"]["24h"] == {"successes": 9, "failures": 3, "mean_duration_s": 2.0}
    assert store.read_sync(endpoint_health, "other")["last_run"] is None
    clock.advance(3 * 86400)
    late = store.read_sync(endpoint_health, endpoint.id)
    assert late["windows"]["24h"]["failures"] == 0 and late["last_run"]["status"] == "FAILED"


@pytest.mark.rule("TIME-11")
def test_the_last_run_is_the_latest_start_in_whatever_order_jobs_end(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    make(store)
    clock.advance(60)
    fire(store)
    first = claim_one(store, worker="one")
    clock.advance(60)
    fire(store)
    second = claim_one(store, worker="two")
    latest = clock.now()
    clock.advance(1)
    complete(store, second)
    assert seen(store, "s").last_run_at == latest
    clock.advance(1)
    complete(store, first)
    assert seen(store, "s").last_run_at == latest


@pytest.mark.rule("DEC-006", "TIME-05")
def test_the_list_by_next_run_begins_with_the_next_and_goes_on_by_cursor(store: PersistenceAdapter) -> None:
    make(store, "early", interval_s=600)
    for number in range(12):
        make(store, f"late-{number:02}", interval_s=90_000 + number)
    make_endpoint(store, "call", interval_s=700)
    store.write_sync(disable_schedule, "late-11")
    result, cursor = [], None
    while True:
        page = store.read_sync(list_schedules, {"order": "next_run"}, endpoint=None, limit=5, cursor=cursor)
        result += [item.name for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert result == ["early", "call", *(f"late-{number:02}" for number in range(11))]
    with pytest.raises(Invalid):
        store.read_sync(list_schedules, {"order": "sideways"})
