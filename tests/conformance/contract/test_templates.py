"""JobTemplates: created, changed by version, archived."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Conflict, Invalid, NotFound, Stale
from holdbeat.domain.job import RetryPolicy
from holdbeat.domain.submission import Submission
from holdbeat.domain.views import schedule_json, template_json
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.firing.manual_fire import trigger_schedule
from holdbeat.store.jobs.submit import submit
from holdbeat.store.queue.job_types import AnnouncedType, announce
from holdbeat.store.queue.templates import (
    archive_template,
    create_template,
    get_template,
    patch_template,
    save_template,
)
from holdbeat.store.schedules.schedules import create_schedule
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import OpenStore, count, events_of, rows
from tests.conformance.races import together

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}}, "required": ["n", "m"]}


@pytest.fixture(autouse=True)
def types(store: PersistenceAdapter) -> None:
    store.write_sync(announce, [AnnouncedType("count", SCHEMA, aliases=("tally",)), AnnouncedType("noop")])


def test_a_template_is_found_by_its_id_and_by_its_name(store: PersistenceAdapter, clock: ManualClock) -> None:
    made = store.write_sync(
        create_template,
        {
            "name": "daily", "type": "tally", "default_params": {"n": 1}, "priority": 0, "resource": "gpu",
            "retry_policy": {"max_attempts": 0}, "timeout_s": 1.5, "webhook_url": "https://example.org/h",
            "labels": {"a": "b"}, "description": "two\nlines",
        },
    )  # fmt: skip
    assert store.read_sync(get_template, made.id) == store.read_sync(get_template, "daily") == made
    assert (made.type, made.version, made.created_at) == ("count", 1, clock.now())
    assert (made.priority, made.retry_policy) == (0, {"max_attempts": 0})
    with pytest.raises(NotFound):
        store.read_sync(get_template, "nightly")


@pytest.mark.rule("API-02")
def test_a_change_counts_the_version_and_an_old_one_is_refused(store: PersistenceAdapter) -> None:
    made = store.write_sync(create_template, {"name": "t", "type": "noop", "priority": 5, "labels": {"a": "b"}})
    changed = store.write_sync(patch_template, "t", {"priority": None, "name": "u"}, version=1)
    assert (changed.priority, changed.name, changed.labels, changed.version) == (None, "u", {"a": "b"}, 2)
    assert store.read_sync(get_template, made.id) == changed
    with pytest.raises(Stale):
        store.write_sync(patch_template, made.id, {"priority": 1}, version=1)
    assert store.read_sync(get_template, made.id) == changed


def test_a_name_can_be_given_once(store: PersistenceAdapter) -> None:
    store.write_sync(create_template, {"name": "a", "type": "noop"})
    store.write_sync(create_template, {"name": "b", "type": "noop"})
    with pytest.raises(Conflict) as refusal:
        store.write_sync(create_template, {"name": "a", "type": "noop"})
    assert refusal.value.code == "name_taken"
    with pytest.raises(Conflict):
        store.write_sync(patch_template, "b", {"name": "a"})
    store.write_sync(patch_template, "b", {"name": "b"})
    store.write_sync(archive_template, "a")
    with pytest.raises(Conflict):
        store.write_sync(create_template, {"name": "a", "type": "noop"})


@pytest.mark.rule("QUE-06", "API-02", "SEC-06")
@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"type": "noop"}, "name"),
        ({"name": "t"}, "type"),
        ({"name": "t", "type": "nope"}, "type"),
        ({"name": "t", "type": "count", "default_params": {"n": "x"}}, "default_params.n"),
        ({"name": "t", "type": "noop", "default_params": None, "priority": 200}, "priority"),
        ({"name": "t", "type": "noop", "version": 5}, "version"),
        ({"name": "t\n", "type": "noop"}, "name"),
        ({"name": "019b76da-a800-71c3-9b8c-5b299b1d87e7", "type": "noop"}, "name"),
        ({"name": "t", "type": "noop", "labels": {"a": None}}, "labels.a"),
    ],
)
def test_a_template_that_does_not_fit_is_refused(store: PersistenceAdapter, given: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        store.write_sync(create_template, given)
    assert refusal.value.field == field
    assert count(store, "job_templates") == 0


@pytest.mark.rule("QUE-06")
def test_another_type_must_fit_the_params_that_are_there(store: PersistenceAdapter) -> None:
    store.write_sync(create_template, {"name": "t", "type": "noop", "default_params": {"n": "text"}})
    with pytest.raises(Invalid):
        store.write_sync(patch_template, "t", {"type": "count"})
    assert store.write_sync(patch_template, "t", {"type": "count", "default_params": {}}).type == "count"


@pytest.mark.rule("INV-005")
def test_archiving_disables_the_schedules_of_the_template_with_an_event(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    mine = store.write_sync(create_template, {"name": "t", "type": "noop"})
    other = store.write_sync(create_template, {"name": "u", "type": "noop"})

    def plant(tx: Transaction) -> None:
        for name, template_id, enabled in (("a", mine.id, True), ("b", mine.id, False), ("c", other.id, True)):
            tx.insert(
                "schedules",
                ("id", "name", "enabled", "template_id", "interval_s", "next_run_at", "wake_at", "created_at"),
                [(name, name, enabled, template_id, 60.0, tx.now, tx.now, tx.now)],
            )

    store.write_sync(plant)
    archived = store.write_sync(archive_template, "t", version=1)
    assert (archived.archived_at, archived.version) == (clock.now(), 2)
    assert rows(store, "SELECT id FROM schedules WHERE enabled = :yes", yes=True) == [("c",)]
    assert rows(store, "SELECT id FROM schedules WHERE wake_at IS NULL OR next_run_at IS NULL") == [("a",)]
    assert [row[0] for row in rows(store, "SELECT schedule_id FROM events WHERE name = 'schedule.changed'")] == ["a"]
    assert store.write_sync(archive_template, "t") == archived
    assert len(events_of(store, "template.archived")) == 1
    with pytest.raises(Conflict):
        store.write_sync(patch_template, "t", {"priority": 1})
    with pytest.raises(Stale):
        store.write_sync(archive_template, "u", version=9)


@pytest.mark.rule("INV-005")
def test_members_of_a_retry_policy_that_a_layer_does_not_name_come_from_below(store: PersistenceAdapter) -> None:
    policy = {"max_attempts": 2, "base_delay_s": 1, "max_delay_s": 5}
    store.write_sync(announce, [AnnouncedType("patient", defaults={"retry_policy": policy})])
    made = store.write_sync(create_template, {"name": "t", "type": "patient", "retry_policy": {"max_attempts": 5}})
    assert template_json(made)["retry_policy"] == {"max_attempts": 5}
    job = store.write_sync(submit, [Submission.read({"template": "t"})]).jobs[0]
    assert job.retry_policy == RetryPolicy(5, 1, 5)
    schedule = store.write_sync(
        create_schedule,
        {"name": "s", "template": "t", "interval_s": 60, "retry_policy": {"max_delay_s": 9, "jitter": 0.5}},
    )
    assert schedule_json(schedule)["retry_policy"] == {"max_delay_s": 9, "jitter": 0.5}
    _, fired = store.write_sync(trigger_schedule, "s")
    assert fired.retry_policy == RetryPolicy(5, 1, 9, 0.5)
    changed = store.write_sync(patch_template, "t", {"retry_policy": {"jitter": 1}})
    assert changed.retry_policy == {"jitter": 1} == store.read_sync(get_template, "t").retry_policy
    for wrong in ({"jitter": 2}, {"max_attempts": -1}, {"tries": 3}):
        with pytest.raises(Invalid):
            store.write_sync(create_schedule, {"name": "x", "type": "noop", "interval_s": 60, "retry_policy": wrong})


def test_processes_that_declare_the_same_template_at_once_all_get_it(open_store: OpenStore) -> None:
    stores = [open_store() for _ in range(4)]
    stores[0].write_sync(announce, [AnnouncedType("noop")])
    for number in range(5):
        value = (f"t{number}", "noop", {"priority": 1})
        results = together([partial(store.write_sync, save_template, *value) for store in stores])
        present = stores[0].read_sync(get_template, f"t{number}")
        assert {getattr(item, "id", item) for item in results} == {present.id}
        assert present.version == 1, "declared alike, it changes nothing"
    assert stores[0].write_sync(save_template, "t0", "noop", {"priority": 2}).version == 2
