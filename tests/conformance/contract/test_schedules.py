"""Schedules and Endpoints as people make, change, read, pause and hint them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, HoldbeatError, Invalid, NotFound, Stale
from holdbeat.domain.job import Hold
from holdbeat.domain.redaction import REDACTED
from holdbeat.domain.views import endpoint_json, occurrence_json, schedule_json
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.firing.manual_fire import trigger_schedule
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.queue.templates import archive_template, create_template
from holdbeat.store.schedules.schedules import (
    create_schedule,
    delete_schedule,
    disable_schedule,
    enable_schedule,
    get_schedule,
    patch_schedule,
    pause_schedule,
    save_named_schedule,
    set_hints,
)
from tests.conformance.acts import OpenStore, cancel, claim_all, claim_one, complete, count, events_of, rows
from tests.conformance.races import together
from tests.conformance.schedule_acts import (
    announce_types,
    fire,
    fire_all,
    jobs_of,
    make,
    make_adaptive,
    make_endpoint,
    occurrences,
    seen,
    wake_at,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
EVERYTHING: dict[str, Any] = {
    "enabled": True,
    "type": "noop",
    "params": {"a": [1, "ü", None]},
    "priority": 9,
    "resource": "gpu",
    "retry_policy": {"max_attempts": 5, "base_delay_s": 1},
    "timeout_s": 12.5,
    "webhook_url": "https://example.org/hook",
    "labels": {"team": "night"},
    "cron": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "dst": "skip",
    "jitter_s": 5,
    "start_at": "2026-02-01T00:00:00Z",
    "end_at": "2027-02-01T00:00:00Z",
    "catch_up": "all",
    "catch_up_limit": 7,
    "misfire_grace_s": 2.5,
    "cancel_grace_s": 3.5,
    "overlap": "queue_one",
}


@pytest.mark.rule("DEC-008", "DEC-010")
def test_a_schedule_is_read_back_as_it_was_made(store: PersistenceAdapter) -> None:
    made = make(store, **EVERYTHING)
    assert seen(store, "s") == made == seen(store, made.id)
    as_json_form = schedule_json(made)
    assert as_json_form["params"] == EVERYTHING["params"] and as_json_form["next_run_at"] == "2026-02-01T01:30:00.000Z"
    adaptive = make_adaptive(store, "b", min_interval_s=5, max_interval_s=50, interval_s=20)
    store.write_sync(set_hints, "b", interval_s=10, next_run_at=START + timedelta(seconds=30), reason="why")
    hinted = seen(store, adaptive.id)
    assert hinted.hint_next_run_reason == "why" and hinted.next_run_at == START + timedelta(seconds=10)
    assert schedule_json(hinted)["last_decision"]["winner"] == "hint_interval"


@pytest.mark.rule("QUE-06")
@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"type": "nope"}, "unknown_type", "type"),
        ({"type": "strict", "params": {"n": "x"}}, None, None),
        ({"type": None}, "missing_type", "type"),
        ({"template": "nope", "type": None}, "unknown_template", "template"),
        ({"timezone": "Mars/Phobos"}, None, "timezone"),
        ({"timezone": "../../etc/passwd"}, None, "timezone"),
        ({"cron": "0 0 31 2 *", "interval_s": None}, None, "cron"),
        ({"cron": "* * * * *"}, "cron_or_interval", None),
        ({"interval_s": 0.5}, None, "interval_s"),
        ({"interval_s": float("nan")}, None, "interval_s"),
        ({"min_interval_s": 5}, "not_adaptive", "min_interval_s"),
        ({"adaptive": True, "overlap": "allow"}, "adaptive_overlap", "overlap"),
        ({"adaptive": True, "min_interval_s": 9, "max_interval_s": 8}, "min_exceeds_max", "min_interval_s"),
        ({"wrong": 1}, "unknown_field", "wrong"),
        ({"name": "01890000-0000-7000-8000-00000000abcd"}, "invalid_text", "name"),
        ({"labels": {"a": 1}}, None, None),
        ({"resource": "*"}, "invalid_resource", "resource"),
        ({"webhook_url": "ftp://x"}, "invalid_url", "webhook_url"),
        ({"params": {"a": "\ud800"}}, None, None),
    ],
)
def test_what_could_not_be_submitted_is_refused_and_leaves_no_trace(
    store: PersistenceAdapter, fields: dict[str, Any], code: str | None, field: str | None
) -> None:
    announce_types(store)
    store.write_sync(
        announce,
        [AnnouncedType("strict", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})],
    )
    body = {"name": "s", "type": "noop", "interval_s": 60, **fields}
    with pytest.raises(Invalid) as refusal:
        store.write_sync(create_schedule, {name: value for name, value in body.items() if value is not None})
    assert code is None or refusal.value.code == code
    assert field is None or refusal.value.field == field
    assert count(store, "schedules") == count(store, "events") == 0


def test_a_name_is_taken_once(store: PersistenceAdapter) -> None:
    make(store, "a")
    make(store, "b")
    with pytest.raises(Conflict, match="has the name 'a'"):
        make(store, "a")
    with pytest.raises(Conflict):
        store.write_sync(patch_schedule, "b", {"name": "a"})
    store.write_sync(delete_schedule, "a")
    make(store, "a")


@pytest.mark.rule("API-02")
def test_a_patch_of_an_older_version_changes_nothing(store: PersistenceAdapter) -> None:
    make(store)
    assert store.write_sync(patch_schedule, "s", {"priority": 5}, version=1).version == 2
    with pytest.raises(Stale):
        store.write_sync(patch_schedule, "s", {"priority": 6}, version=1)
    with pytest.raises(Stale):
        store.write_sync(delete_schedule, "s", version=1)
    assert seen(store, "s").priority == 5


def test_a_patch_is_checked_as_a_whole(store: PersistenceAdapter) -> None:
    """A pitfall: min ≤ max was checked within the request only; and a patch left cron and interval both set."""
    make_adaptive(store, min_interval_s=100, max_interval_s=200)
    with pytest.raises(Invalid, match="must not exceed"):
        store.write_sync(patch_schedule, "s", {"max_interval_s": 50})
    changed = store.write_sync(patch_schedule, "s", {"cron": "*/5 * * * *"})
    assert (changed.cron, changed.interval_s) == ("*/5 * * * *", None)
    changed = store.write_sync(patch_schedule, "s", {"interval_s": 30})
    assert (changed.cron, changed.interval_s) == (None, 30)


@pytest.mark.rule("DEC-010", "GOV-08")
def test_another_timezone_plans_at_once_and_leaves_what_has_fired(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, cron="0 9 * * *")
    clock.advance(9 * 3600)
    fire(store)
    before = occurrences(store, schedule)
    store.write_sync(patch_schedule, "s", {"timezone": "America/New_York"})
    assert seen(store, "s").next_run_at == START + timedelta(hours=14) == wake_at(store, schedule)
    assert occurrences(store, schedule) == before


@pytest.mark.rule("TIME-06")
def test_an_edit_at_the_instant_of_firing_gives_old_or_new_once(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, cron="* * * * *", priority=1)
    clock.advance(60)
    store.write_sync(patch_schedule, "s", {"priority": 2, "timezone": "Europe/Berlin"})
    assert fire_all(store) == 1
    [job] = jobs_of(store, schedule)
    assert job.priority == 2 and job.scheduled_for == START + timedelta(seconds=60)
    clock.advance(60)
    fire(store)
    store.write_sync(disable_schedule, "s")
    assert fire_all(store) == 0 and len(jobs_of(store, schedule)) == 2
    clock.advance(3600)
    store.write_sync(enable_schedule, "s")
    assert fire_all(store) == 0, "what it would have had meanwhile is not made up for"


@pytest.mark.rule("TIME-11")
def test_a_manual_fire_works_while_paused_or_disabled_and_is_refused_where_overlap_forbids(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    schedule = make(store, overlap="skip", priority=3)
    store.write_sync(pause_schedule, "s", None, None)
    store.write_sync(disable_schedule, "s")
    occurrence, job = store.write_sync(trigger_schedule, "s")
    assert (job.priority, job.params, job.scheduled_for) == (3, {}, clock.now())
    assert occurrence_json(occurrence)["status"] == "manual"
    with pytest.raises(Conflict) as refusal:
        store.write_sync(trigger_schedule, "s")
    assert refusal.value.code == "overlap"
    complete(store, claim_one(store))
    store.write_sync(trigger_schedule, "s")
    assert [item.status for item in occurrences(store, schedule)] == ["manual", "manual"]
    assert seen(store, "s").last_run_at == START


@pytest.mark.rule("TIME-11")
def test_manual_fires_obey_queue_one_and_cancel_previous(store: PersistenceAdapter) -> None:
    make(store, "q", overlap="queue_one")
    store.write_sync(trigger_schedule, "q")
    taken = claim_one(store)
    _, waiting = store.write_sync(trigger_schedule, "q")
    assert waiting.hold is Hold.OVERLAPPED
    with pytest.raises(Conflict):
        store.write_sync(trigger_schedule, "q")
    complete(store, taken)
    assert [item.job.id for item in claim_all(store) if item.job] == [waiting.id]
    make(store, "c", overlap="cancel_previous")
    _, first = store.write_sync(trigger_schedule, "c")
    _, second = store.write_sync(trigger_schedule, "c")
    assert [item.job.id for item in claim_all(store, worker="x") if item.job] == [second.id] != [first.id]


@pytest.mark.rule("INV-005")
def test_deleting_a_schedule_leaves_its_jobs_and_its_record(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make_adaptive(store)
    clock.advance(60)
    fire(store)
    taken = claim_one(store)
    store.write_sync(delete_schedule, "s")
    with pytest.raises(NotFound):
        seen(store, "s")
    complete(store, taken)
    assert len(occurrences(store, schedule)) == 1 and count(store, "jobs") == 1


def test_an_archived_template_makes_no_schedule_and_enables_none(store: PersistenceAdapter) -> None:
    announce_types(store)
    store.write_sync(create_template, {"name": "t", "type": "noop"})
    schedule = make(store, template="t")
    assert schedule.template_id and schedule.type is None
    store.write_sync(archive_template, "t")
    with pytest.raises(HoldbeatError, match="archived"):
        make(store, "other", template="t")
    with pytest.raises(HoldbeatError, match="archived"):
        store.write_sync(enable_schedule, "s")
    with pytest.raises(HoldbeatError, match="archived"):
        store.write_sync(patch_schedule, "s", {"enabled": True})
    assert store.write_sync(patch_schedule, "s", {"priority": 1}).enabled is False


def test_declaring_a_schedule_again_changes_nothing(store: PersistenceAdapter) -> None:
    announce_types(store)
    fields = {"type": "noop", "cron": "0 9 * * *", "params": {"a": 1}}
    first = store.write_sync(save_named_schedule, "daily", fields)
    assert store.write_sync(save_named_schedule, "daily", fields) == first
    assert store.write_sync(save_named_schedule, "daily", {**fields, "priority": 1}).version == 2


# --- endpoints ---------------------------------------------------------------------------------------------


@pytest.mark.rule("SEC-07")
def test_secret_headers_are_never_shown_and_the_mark_keeps_them(store: PersistenceAdapter) -> None:
    made = make_endpoint(store, headers={"Authorization": "Bearer secret", "X-Plain": "1"})
    as_json_form = endpoint_json(made)
    assert as_json_form["headers"] == {"Authorization": REDACTED, "X-Plain": "1"} and "secret" not in str(as_json_form)
    patched = store.write_sync(
        patch_schedule, "e", {"headers": {"authorization": REDACTED, "X-Plain": "2"}}, endpoint=True
    )
    assert patched.endpoint is not None
    assert patched.endpoint.headers == {"authorization": "Bearer secret", "X-Plain": "2"}
    with pytest.raises(Invalid, match="Send its value"):
        store.write_sync(patch_schedule, "e", {"headers": {"Cookie": REDACTED}})
    assert "secret" not in str(rows(store, "SELECT data FROM events"))
    plain = make(store, "h", type="http", params={"url": "http://x/", "headers": {"Cookie": "c=secret"}})
    assert schedule_json(plain)["params"]["headers"] == {"Cookie": REDACTED}
    store.write_sync(patch_schedule, "h", {"params": {"url": "http://x/y", "headers": {"Cookie": REDACTED}}})
    assert seen(store, "h").params == {"url": "http://x/y", "headers": {"Cookie": "c=secret"}}


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "ftp://x"},
        {"timeout_s": 61},
        {"max_execution_s": 1801},
        {"type": "noop"},
        {"resource": "gpu"},
        {"adaptive": False},
        {"method": "BREW"},
        {"headers": {"a\nb": "c"}},
        {"min_interval_s": 10, "max_interval_s": 5},
    ],
)
def test_an_endpoint_that_cannot_be_called_is_refused(store: PersistenceAdapter, fields: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        make_endpoint(store, **fields)
    assert count(store, "schedules") == 0


def test_a_schedule_is_not_found_as_an_endpoint(store: PersistenceAdapter) -> None:
    make(store)
    endpoint = make_endpoint(store)
    assert store.read_sync(get_schedule, "e", endpoint=True) == endpoint
    with pytest.raises(NotFound, match="endpoint"):
        store.read_sync(get_schedule, "s", endpoint=True)
    with pytest.raises(NotFound):
        store.write_sync(delete_schedule, "s", endpoint=True)


def test_every_change_is_on_record(store: PersistenceAdapter) -> None:
    make(store)
    store.write_sync(pause_schedule, "s", None, "why")
    store.write_sync(delete_schedule, "s")
    events = [json.loads(row[3])["change"] for row in events_of(store, "schedule.changed")]
    assert events == ["created", "paused", "deleted"]


@pytest.mark.rule("TIME-09")
def test_a_start_at_this_very_moment_is_the_first_due_time(store: PersistenceAdapter, clock: ManualClock) -> None:
    now = clock.now()
    kinds: dict[str, dict[str, Any]] = {
        "interval": {"interval_s": 60},
        "adaptive": {"interval_s": 60, "adaptive": True},
        "cron": {"cron": "* * * * *"},
    }
    for name, fields in kinds.items():
        assert make(store, name, start_at=now, **fields).next_run_at == now, name
    assert fire(store).fired == 3
    assert fire(store).fired == 0
    assert seen(store, "interval").next_run_at == now + timedelta(seconds=60)
    # An edit to the same effect makes it due once, not twice.
    clock.advance(5)
    moved = store.write_sync(patch_schedule, "interval", {"start_at": clock.now()})
    assert moved.next_run_at == clock.now()
    assert fire(store).fired == 1


@pytest.mark.rule("TIME-11", "TIME-02")
def test_a_fire_by_hand_never_takes_the_place_of_a_due_time(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, cron="* * * * *")
    clock.advance(60)
    by_hand, _ = store.write_sync(trigger_schedule, "s")
    assert by_hand.due_at == clock.now() + timedelta(milliseconds=1)
    firing = fire(store)
    assert (firing.fired, firing.refused) == (1, 0)
    # Nor that of one which is due next while an older one is pending.
    clock.advance(120)
    by_hand, _ = store.write_sync(trigger_schedule, "s")
    assert by_hand.due_at != clock.now()
    fire(store)
    assert [str(occurrence.status) for occurrence in occurrences(store, schedule)].count("manual") == 2
    assert {occurrence.due_at for occurrence in occurrences(store, schedule)} >= {
        clock.now(),
        clock.now() - timedelta(seconds=120),
    }


@pytest.mark.rule("GOV-09", "GOV-05")
@pytest.mark.parametrize("clamps", [{}, {"max_interval_s": 60}])
def test_a_job_that_is_cancelled_at_the_instant_it_was_made_leaves_no_loop(
    store: PersistenceAdapter, clock: ManualClock, clamps: dict[str, Any]
) -> None:
    schedule = make_adaptive(store, **clamps)
    clock.advance(60)
    fire(store)
    complete(store, claim_one(store))
    clock.advance(60)
    for _ in range(3):
        fire(store)
        for job in jobs_of(store, schedule):
            if job.status == "QUEUED":
                cancel(store, job.id)
    planned = seen(store, "s").next_run_at
    assert planned is not None and planned > clock.now()
    assert fire(store).judged == 0


@pytest.mark.rule("GOV-08")
def test_processes_that_declare_the_same_schedule_at_once_all_get_it(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(4)]
    announce_types(stores[0])
    for number in range(5):
        fields = {"cron": "0 0 * * *", "type": "noop"}
        results = together([partial(store.write_sync, save_named_schedule, f"s{number}", fields) for store in stores])
        assert {getattr(item, "id", item) for item in results} == {seen(stores[0], f"s{number}").id}
        assert seen(stores[0], f"s{number}").version == 1
