"""What a person writes into the tables by hand counts: the columns that only the program knows follow it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.json_text import json_text
from holdbeat.domain.lease import LeaseTerms
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.queue.enqueue import COLUMN_DEFAULTS
from holdbeat.store.recovery.recover import find_trouble, recovery_units
from holdbeat.store.schedules.schedules import set_hints
from tests.conformance.acts import change, claim_all, claim_one, enqueue_one, ids_of, rows
from tests.conformance.schedule_acts import fire_all, make, make_adaptive, seen, verdicts, wake_at


@pytest.mark.rule("TIME-03", "REC-02")
def test_a_plan_that_was_put_into_the_past_is_caught_up(store: PersistenceAdapter, clock: ManualClock) -> None:
    schedule = make(store, cron="0 * * * *")
    clock.advance(4 * 3600)
    change(
        store,
        "UPDATE schedules SET next_run_at = :at WHERE id = :id",
        at=store.clock.now() - timedelta(hours=3),
        id=schedule.id,
    )
    assert fire_all(store) == 1
    lines = [status for _, status in verdicts(store, schedule)]
    assert lines.count("fired") == 1 and set(lines) == {"coalesced", "fired"}
    planned = seen(store, schedule.id)
    assert planned.next_run_at == wake_at(store, planned)


@pytest.mark.rule("GOV-09")
def test_an_adaptive_schedule_whose_plan_was_taken_away_is_planned_again(store: PersistenceAdapter) -> None:
    schedule = make_adaptive(store)
    change(store, "UPDATE schedules SET next_run_at = NULL WHERE id = :id", id=schedule.id)
    assert wake_at(store, schedule) is None
    ((verb, arguments),) = recovery_units(store.read_sync(find_trouble, LeaseTerms()))
    assert store.write_sync(verb, *arguments)
    assert seen(store, schedule.id).next_run_at == schedule.next_run_at


@pytest.mark.rule("GOV-02")
def test_the_end_of_a_hint_still_wakes_the_trigger_when_the_plan_was_moved(store: PersistenceAdapter) -> None:
    schedule = make_adaptive(store)
    hinted = store.write_sync(set_hints, schedule.id, interval_s=1800.0, ttl_s=60.0)
    before = wake_at(store, hinted)
    later = store.clock.now() + timedelta(hours=2)
    change(store, "UPDATE schedules SET next_run_at = :at WHERE id = :id", at=later, id=schedule.id)
    assert wake_at(store, hinted) == before


@pytest.mark.rule("INV-004")
def test_a_delay_or_a_priority_that_was_changed_by_hand_counts(store: PersistenceAdapter, clock: ManualClock) -> None:
    first, delayed = enqueue_one(store), enqueue_one(store, not_before=store.clock.now() + timedelta(hours=1))
    raised, held = enqueue_one(store), enqueue_one(store)
    change(store, "UPDATE jobs SET not_before = NULL WHERE id = :id", id=delayed.id)
    change(store, "UPDATE jobs SET priority = 7 WHERE id = :id", id=raised.id)
    later = store.clock.now() + timedelta(hours=1)
    change(store, "UPDATE jobs SET not_before = :later WHERE id = :id", later=later, id=held.id)
    assert ids_of(claim_all(store)) == [raised.id, first.id, delayed.id]
    clock.advance(3601)
    assert ids_of(claim_all(store, worker="another")) == [held.id]


@pytest.mark.rule("INV-004", "DEC-005")
def test_a_job_that_was_written_into_the_table_stands_where_its_columns_say(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    enqueue_one(store)
    now = store.clock.now()
    for name, priority, not_before in (("urgent", 7, None), ("later", 9, now + timedelta(hours=1))):
        change(
            store,
            "INSERT INTO jobs (id, type, priority, position, not_before, created_at) "
            "VALUES (:id, 'noop', :priority, 100, :not_before, :now)",
            id=name,
            priority=priority,
            not_before=not_before,
            now=now,
        )
    assert ids_of([claim_one(store, worker="first")]) == ["urgent"]
    clock.advance(3601)
    assert ids_of([claim_one(store, worker="second")]) == ["later"]


@pytest.mark.rule("INV-004")
def test_columns_that_a_submission_leaves_out_get_the_values_that_it_means(store: PersistenceAdapter) -> None:
    change(
        store,
        "INSERT INTO jobs (id, type, position, created_at) VALUES ('plain', 'noop', 100, :now)",
        now=store.clock.now(),
    )
    (row,) = rows(store, f"SELECT {', '.join(COLUMN_DEFAULTS)} FROM jobs WHERE id = 'plain'")
    stored = [value if isinstance(value, int | str) else json_text(value) for value in row]
    assert stored == list(COLUMN_DEFAULTS.values())
