"""Operational Events reach subscriptions and are counted by the store, whoever records them."""

from __future__ import annotations

import json

import pytest

from holdbeat.domain import events
from holdbeat.domain.webhook import OPERATIONAL_EVENTS
from holdbeat.observe.metrics import Metrics
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.rare_events import event_counts
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.subscriptions import create_webhook, patch_webhook
from tests.conformance.acts import OpenStore, claim_one, complete, enqueue_one, rows


def _record_all(tx: Transaction) -> None:
    for name in OPERATIONAL_EVENTS:
        tx.record(name, worker_id="w", schedule_id="s", reason="why")


@pytest.mark.rule("ALR-01")
def test_each_operational_event_is_delivered_to_who_subscribed_to_it(store: PersistenceAdapter) -> None:
    some = store.write_sync(create_webhook, "https://a.example/", [events.ZOMBIE_FOUND, events.CLOCK_JUMPED])
    every = store.write_sync(create_webhook, "https://b.example/")
    store.write_sync(create_webhook, "https://c.example/", ["job.cancelled"])
    disabled = store.write_sync(create_webhook, "https://d.example/")
    store.write_sync(patch_webhook, disabled.id, {"enabled": False})
    store.write_sync(_record_all)
    deliveries = rows(store, "SELECT webhook_id, event, payload FROM deliveries ORDER BY id")
    assert {(row[0], row[1]) for row in deliveries} == {
        (some.id, events.ZOMBIE_FOUND),
        (some.id, events.CLOCK_JUMPED),
        *((every.id, name) for name in OPERATIONAL_EVENTS),
    }
    for _, name, payload in deliveries:
        message = json.loads(payload)
        assert message["type"] == message["data"]["event"]["name"] == name
        assert message["data"]["event"]["worker_id"] == "w"
        assert message["data"]["event"]["data"] == {"reason": "why"}


@pytest.mark.rule("ALR-01", "LEASE-03")
def test_a_stale_result_is_told_to_subscribers(store: PersistenceAdapter) -> None:
    store.write_sync(create_webhook, "https://a.example/", [events.STALE_RESULT])
    job = enqueue_one(store)
    taken = claim_one(store)
    complete(store, taken)
    complete(store, taken)
    assert rows(store, "SELECT event, job_id FROM deliveries") == [(events.STALE_RESULT, job.id)]


@pytest.mark.rule("ALR-01")
def test_what_is_rolled_back_is_neither_told_nor_counted(store: PersistenceAdapter) -> None:
    store.write_sync(create_webhook, "https://a.example/")

    def record_and_fail(tx: Transaction) -> None:
        _record_all(tx)
        tx.write_events()
        raise RuntimeError("undone")

    with pytest.raises(RuntimeError):
        store.write_sync(record_and_fail)
    assert rows(store, "SELECT id FROM deliveries") == []
    assert set(store.read_sync(event_counts).values()) == {0}


@pytest.mark.rule("ALR-04")
def test_every_process_shows_the_counters_of_the_store(open_store: OpenStore) -> None:
    worker, server = open_store(), open_store()
    for _ in range(3):
        worker.write_sync(_record_all)
    text = Metrics(server).render().decode()
    for name in ("lease_expiries", "stale_results", "zombies_recovered", "clock_jumps", "double_fires_refused"):
        assert f"holdbeat_{name}_total 3.0" in text
