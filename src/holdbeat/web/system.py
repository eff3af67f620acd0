"""What the pages about the system itself read: workers, events, webhooks, settings in force."""

from __future__ import annotations

import dataclasses
import platform
from typing import Any

from holdbeat.domain.views import delivery_json, event_json, webhook_json
from holdbeat.domain.webhook import DeliveryStatus
from holdbeat.observe.redaction import without_secrets
from holdbeat.store.queue.job_types import list_types
from holdbeat.store.queue.pauses import list_pauses
from holdbeat.store.reads.event_log import newest_events
from holdbeat.store.reads.needs_attention import occupants
from holdbeat.store.running.workers import all_workers
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.deliveries import list_deliveries
from holdbeat.store.webhooks.subscriptions import list_webhooks
from holdbeat.web.request import Ask

EVENTS_SHOWN = 100


def read_workers(tx: Transaction, ask: Ask) -> dict[str, Any]:
    busy = occupants(tx, 1000)
    alive: list[dict[str, Any]] = []
    gone: list[dict[str, Any]] = []
    for worker in all_workers(tx, 100):
        is_alive = worker.stopped_at is None and worker.expires_at is not None and worker.expires_at > tx.now
        entry = {"worker": worker, "occupants": [each for each in busy if each.worker_id == worker.id]}
        (alive if is_alive else gone).append(entry)
    return {"alive": alive, "gone": gone[:20]}


def read_events(tx: Transaction, ask: Ask) -> dict[str, Any]:
    before = ask.text("before")
    number = int(before) if before and before.isascii() and before.isdigit() and len(before) < 19 else None
    found = newest_events(tx, number, EVENTS_SHOWN + 1)
    return {
        "events": [event_json(each) for each in found[:EVENTS_SHOWN]],
        "older": found[EVENTS_SHOWN - 1].id if len(found) > EVENTS_SHOWN else None,
        "is_newest": number is None,
    }


def read_webhooks(tx: Transaction, ask: Ask) -> dict[str, Any]:
    status = ask.text("status")
    chosen = DeliveryStatus(status) if status in tuple(DeliveryStatus) else None
    page = list_deliveries(tx, status=chosen, limit=50, cursor=ask.text("cursor"))
    return {
        "webhooks": [webhook_json(each) for each in list_webhooks(tx, limit=100).items],
        "deliveries": [delivery_json(each) for each in page.items],
        "next_cursor": page.next_cursor,
        "status": chosen,
        "statuses": list(DeliveryStatus),
    }


def read_settings(tx: Transaction, ask: Ask) -> dict[str, Any]:
    settings = ask.service.settings
    rows = []
    for field in dataclasses.fields(settings):
        if field.name != "origins":
            value = getattr(settings, field.name)
            shown = without_secrets(_words(value))
            origin = settings.origins.get(field.name)
            rows.append({"name": field.name, "value": shown or "–", "origin": origin or "default"})
    return {
        "rows": rows,
        "dialect": "SQLite" if tx.dialect == "sqlite" else "PostgreSQL",
        "python": platform.python_version(),
        "policy": str(settings.concurrency_policy),
        "types": list_types(tx),
        "pauses": list_pauses(tx),
    }


def _words(value: Any) -> str:
    """A setting as its file would write it; nothing for what is not set."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} = {each}" for name, each in value.items())
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
