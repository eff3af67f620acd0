"""Looking ahead, firing and planning go by their index: the number of schedules and of due times does not matter."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdbeat.domain.clock import ManualClock
from holdbeat.domain.run import Outcome
from holdbeat.domain.schedule_edit import created
from holdbeat.domain.schedule_steps import replanned
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.firing.fire_due import fire_due
from holdbeat.store.firing.upcoming import read_upcoming
from holdbeat.store.reads.needs_attention import failing_schedules, next_schedules, troubled_schedules
from holdbeat.store.running.settle import settle
from holdbeat.store.schedules.after_run import orphaned_schedules
from holdbeat.store.schedules.schedule_reports import list_schedules
from holdbeat.store.schedules.schedule_rows import insert_schedules
from holdbeat.store.transaction import Transaction
from tests.conformance.acts import change, claim_all, settlement
from tests.conformance.plans import plans_of
from tests.conformance.schedule_acts import announce_types, fire, fire_all, make_adaptive

LONG = frozenset({"jobs", "j", "events", "schedules", "s", "occurrences", "o"})
MANY = 5000


def fill(store: PersistenceAdapter, clock: ManualClock) -> None:
    """Many schedules that are not due, and as many due times behind us."""
    announce_types(store)

    def insert(tx: Transaction) -> None:
        made = []
        for number in range(MANY):
            fields = {"name": f"many-{number}", "type": "noop", "interval_s": 3600, "overlap": "skip"}
            made.append(replanned(created(tx.new_id(), fields, tx.now), tx.now).schedule)
        insert_schedules(tx, made)

    store.write_sync(insert)
    clock.advance(3600)
    assert fire_all(store) == MANY
    change(store, "UPDATE jobs SET status = 'COMPLETED', finished_at = :now", now=clock.now())
    for number in range(3):
        make_adaptive(store, f"soon-{number}")
    if not store.url.startswith("sqlite"):
        for table in ("schedules", "occurrences", "jobs", "events"):
            change(store, f"ANALYZE {table}")


@pytest.mark.rule("TIME-04")
def test_no_step_of_a_schedule_reads_a_long_table_whole(store: PersistenceAdapter, clock: ManualClock) -> None:
    fill(store, clock)
    plans = plans_of(store, read_upcoming, clock.now() + timedelta(seconds=10))
    clock.advance(60)
    plans += plans_of(store, fire_due, 500)
    assert fire(store).fired == 3
    ends = [settlement(item, Outcome.completed()) for item in claim_all(store)]
    plans += plans_of(store, settle.many, [ends])
    plans += plans_of(store, orphaned_schedules)
    assert any("schedules_unplanned" in plan.indexes for plan in plans)
    # That index holds nothing but what is in flight: to go through all of it is what it is for.
    plans = [plan for plan in plans if "schedules_unplanned" not in plan.indexes or "jobs" in plan.tables_read_whole]
    read_whole = [(plan.sql, plan.steps) for plan in plans if plan.tables_read_whole & LONG]
    assert read_whole == []
    assert any("schedules_wake" in plan.indexes for plan in plans)


@pytest.mark.rule("TIME-04")
def test_what_needs_attention_is_found_by_its_index(store: PersistenceAdapter, clock: ManualClock) -> None:
    fill(store, clock)
    change(store, "UPDATE schedules SET failure_count = 3 WHERE name = 'soon-0'")
    change(store, "UPDATE schedules SET trouble = 'its zone is gone' WHERE name = 'soon-1'")
    assert [schedule.name for schedule in store.read_sync(failing_schedules)] == ["soon-0"]
    assert [schedule.name for schedule in store.read_sync(troubled_schedules)] == ["soon-1"]
    plans = plans_of(store, failing_schedules) + plans_of(store, troubled_schedules)
    assert [plan.steps for plan in plans if "schedules_in_need" not in plan.indexes] == []
    plans = plans_of(store, next_schedules) + plans_of(store, list_schedules, {"order": "next_run"}, limit=8)
    assert [plan.steps for plan in plans if plan.indexes != {"schedules_wake"} or plan.sorts_table] == []
