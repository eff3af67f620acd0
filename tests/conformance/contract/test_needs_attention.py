"""ALR-01, ALR-04: operational Events need attention until they are seen, and counting them makes nobody wait."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from holdbeat.domain import events
from holdbeat.domain.attention import KEPT_DAYS
from holdbeat.domain.clock import ManualClock
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import NewJob, RetryPolicy
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.attention import mark_seen, read_attention
from holdbeat.store.queue.pauses import pause
from holdbeat.store.rare_events import RARE, event_counts
from holdbeat.store.reads import needs_attention
from holdbeat.store.recovery.prune import prune
from holdbeat.store.running.settle import settle
from holdbeat.store.schedules.schedules import create_schedule
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.subscriptions import create_webhook, delete_webhook
from tests.conformance.acts import (
    OpenStore,
    change,
    claim_one,
    claim_some,
    complete,
    enqueue_all,
    enqueue_one,
    fail,
    rows,
    settlement,
)
from tests.conformance.schedule_acts import announce_types


def record(tx: Transaction, name: str = events.ZOMBIE_FOUND, count: int = 1) -> None:
    for _ in range(count):
        tx.record(name, worker_id="w", host="left")


def kinds(store: PersistenceAdapter) -> list[str]:
    return [item.kind for item in store.read_sync(read_attention)]


@pytest.mark.rule("ALR-01")
def test_operational_events_are_one_item_with_since_when_and_what_to_do_until_they_are_seen(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    assert store.read_sync(read_attention) == []
    first = clock.now()
    store.write_sync(record)
    clock.advance(60)
    store.write_sync(record, count=2)
    store.write_sync(record, events.CLOCK_JUMPED)
    zombies, clocks = store.read_sync(read_attention)
    assert (zombies.kind, zombies.count, zombies.since, zombies.last_at) == (
        events.ZOMBIE_FOUND, 3, first, first + timedelta(seconds=60)
    )  # fmt: skip
    assert zombies.text.startswith("3 runs lost") and zombies.advice and "host left" in (zombies.detail or "")
    assert clocks.text == "A clock jumped"
    assert store.write_sync(mark_seen, events.ZOMBIE_FOUND) == 1
    assert kinds(store) == [events.CLOCK_JUMPED]
    store.write_sync(record)
    assert [(item.kind, item.count) for item in store.read_sync(read_attention)] == [
        (events.ZOMBIE_FOUND, 1),
        (events.CLOCK_JUMPED, 1),
    ]
    assert store.write_sync(mark_seen) == 2
    assert kinds(store) == []
    with pytest.raises(Invalid, match="no operational event"):
        store.write_sync(mark_seen, events.JOB_QUEUED)


@pytest.mark.rule("ALR-01")
def test_events_that_nobody_saw_leave_after_a_week_and_states_stay_until_they_are_mended(
    store: PersistenceAdapter, clock: ManualClock
) -> None:
    store.write_sync(record)
    store.write_sync(pause, "gpu", reason="new model")
    enqueue_one(store, "nobody")
    clock.advance(KEPT_DAYS * 86_400 + 1)
    assert kinds(store) == ["paused", "no_worker"]
    store.write_sync(mark_seen)
    assert kinds(store) == ["paused", "no_worker"]


@pytest.mark.rule("ALR-04")
def test_counters_outlive_the_log(store: PersistenceAdapter, clock: ManualClock) -> None:
    store.write_sync(record, count=3)
    clock.advance(100)
    store.write_sync(record)
    assert store.read_sync(event_counts)[events.ZOMBIE_FOUND] == 4
    store.write_sync(prune, clock.now() - timedelta(seconds=50))
    assert rows(store, "SELECT count(*) FROM events WHERE name = 'zombie.found'") == [(1,)]
    assert store.read_sync(event_counts)[events.ZOMBIE_FOUND] == 4


@pytest.mark.rule("ALR-04")
def test_operational_events_are_counted_from_their_index(store: PersistenceAdapter, engine: str) -> None:
    store.write_sync(record, events.RETRY_CREATED, 20_000)
    store.write_sync(record, count=20)
    change(store, "ANALYZE")
    explain = "EXPLAIN QUERY PLAN" if engine == "sqlite" else "EXPLAIN"
    plan = rows(
        store, f"{explain} SELECT name, count(*) FROM events WHERE {RARE} AND name = 'zombie.found' GROUP BY name"
    )
    assert "events_rare" in str(plan)


@pytest.mark.rule("ALR-04")
def test_two_transactions_that_record_the_same_event_do_not_wait_for_each_other(
    postgres_url: str,
) -> None:
    # SQLite has one writer, who waits for nobody; there each transaction has its turn.
    open_store = OpenStore(postgres_url, ManualClock())
    first, second = open_store(), open_store()
    recorded, done = threading.Event(), threading.Event()

    def hold_open(tx: Transaction) -> None:
        record(tx)
        tx.write_events()
        recorded.set()
        assert done.wait(30), "the second transaction waits for the first"

    holder = threading.Thread(target=first.write_sync, args=(hold_open,))
    holder.start()
    assert recorded.wait(30)
    second.write_sync(record)
    assert second.read_sync(event_counts)[events.ZOMBIE_FOUND] == 1
    done.set()
    holder.join(30)
    assert second.read_sync(event_counts)[events.ZOMBIE_FOUND] == 2
    open_store.close()


@pytest.mark.rule("ALR-01")
def test_what_is_too_much_to_be_named_is_counted(store: PersistenceAdapter) -> None:
    announce_types(store)
    for number in range(10):
        call = {"name": f"call {number}", "url": "http://127.0.0.1:9/", "interval_s": 600}
        store.write_sync(create_schedule, call, endpoint=True)
    for number in range(3):
        store.write_sync(create_schedule, {"name": f"work {number}", "type": "noop", "interval_s": 600})
    change(store, "UPDATE schedules SET failure_count = CASE WHEN endpoint IS NULL THEN 2 ELSE 1 END")
    webhook = store.write_sync(create_webhook, "http://127.0.0.1:9/hook")
    for _ in range(6):
        enqueue_one(store)
        complete(store, claim_one(store))
    store.write_sync(delete_webhook, webhook.id)
    items = store.read_sync(read_attention)
    assert [item.text for item in items if item.kind == "failing" and item.schedule_id is None] == [
        "5 more endpoints are failing"
    ]
    assert sum(item.kind == "failing" for item in items) == 9
    deliveries = [item for item in items if item.kind == "delivery"]
    assert deliveries[-1].text == "2 more messages were not delivered" and len(deliveries) == 5


@pytest.mark.rule("ALR-01")
def test_failed_calls_of_endpoints_do_not_hide_a_job_that_failed(
    store: PersistenceAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = RetryPolicy(max_attempts=0)
    enqueue_one(store, retry_policy=once)
    fail(store, claim_one(store))
    calls = [
        NewJob("http", resource="http", retry_policy=once, schedule_id="s", partition=f"host {number % 8}")
        for number in range(520)
    ]
    enqueue_all(store, calls)
    failed = Outcome.failed(ErrorKind.ERROR, "HTTP 500")
    claims = claim_some(store, 0, http=len(calls))
    store.write_sync(settle, [settlement(claim, failed) for claim in claims])
    assert [item.text for item in store.read_sync(read_attention)] == ["noop failed permanently"]
    monkeypatch.setattr(needs_attention, "FAILURES_READ", len(calls))
    (item,) = store.read_sync(read_attention)
    assert item.kind == "failed" and "not named here" in (item.detail or "")
