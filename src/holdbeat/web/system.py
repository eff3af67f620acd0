"""Reads for the pages about the system: limits, workers, events, webhooks, settings in force."""

from __future__ import annotations

import dataclasses
import platform
import re
from collections import Counter
from datetime import timedelta
from typing import Any

from holdbeat.domain.api_key import Scope
from holdbeat.domain.events import Event
from holdbeat.domain.redaction import without_secrets
from holdbeat.domain.views import delivery_json, event_json, webhook_json
from holdbeat.domain.webhook import DeliveryStatus, host_of
from holdbeat.settings import Settings
from holdbeat.store.access.api_keys import list_api_keys
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.limits.usage import usage
from holdbeat.store.queue.job_types import list_types
from holdbeat.store.queue.pauses import list_pauses
from holdbeat.store.reads.find_events import EventSearch, find_events
from holdbeat.store.reads.lease_holders import SlotHolder, leases_held, slot_holders
from holdbeat.store.reads.limit_figures import affinity_counts, limit_figures
from holdbeat.store.reads.names import job_titles
from holdbeat.store.reads.workers import all_workers, live_workers
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.deliveries import PENDING_COUNTED, list_deliveries, pending_to
from holdbeat.store.webhooks.subscriptions import list_webhooks
from holdbeat.web.event_sentences import PROBLEMS, ROUTINE, sentences
from holdbeat.web.request import PageRequest
from holdbeat.web.setting_words import MEANINGS

EVENTS_SHOWN = 100
SCOPES = {
    Scope.READ: "sees everything, changes nothing",
    Scope.WRITE: "submits, cancels, pauses, changes",
    Scope.ADMIN: "also runs shell jobs and manages keys",
}
DEFAULTS = Settings()
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
PERIODS_H = {"hour": 1, "24 hours": 24, "7 days": 168}
GONE_SHOWN = 20
EVENT_KINDS = {"decisions": "Decisions", "problems": "Problems", "all": "Everything"}


def read_workers(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    busy, held = slot_holders(tx, 1000), leases_held(tx)
    workers = live_workers(tx)
    alive: list[dict[str, Any]] = [
        {
            "worker": worker,
            "slot_holders": [holder for holder in busy if holder.worker_id == worker.id],
            "busy": sum(count for (holder, _), count in held.items() if holder == worker.id),
        }
        for worker in reversed(workers)
    ]
    ids = {worker.id for worker in workers}
    newest = all_workers(tx, len(ids) + GONE_SHOWN)
    return {
        "alive": alive,
        "gone": [worker for worker in newest if worker.id not in ids][:GONE_SHOWN],
        "gone_shown": GONE_SHOWN,
        "busy": sum(entry["busy"] for entry in alive),
        "slots": sum(entry["worker"].slots for entry in alive),
        "http_slots": sum(entry["worker"].http_slots for entry in alive),
        "types": {name for entry in alive for name in entry["worker"].types},
    }


def read_events(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    kind = request.text("show") or ""
    kind = kind if kind in EVENT_KINDS else "decisions"
    text, actor, period = request.text("q"), request.text("actor"), request.text("period")
    hours = PERIODS_H.get(period or "")
    search = EventSearch(text, actor=actor, since=tx.now - timedelta(hours=hours) if hours else None)
    before = _number(request.text("before"))
    page = find_events(tx, search, before=before, limit=EVENTS_SHOWN, is_wanted=lambda event: _is_shown(event, kind))
    return {
        "events": sentences(tx, [event_json(event) for event in page.events]),
        "older": page.following,
        "is_newest": before is None,
        "text": text,
        "actor": actor,
        "period": period if hours else None,
        "periods": [(name, f"Last {name}") for name in PERIODS_H],
        "show": kind,
        "kinds": EVENT_KINDS,
        "read_count": page.read_count,
    }


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def _is_shown(event: Event, kind: str) -> bool:
    if kind == "problems":
        return event.name in PROBLEMS or event.data.get("status") == "FAILED"
    return kind == "all" or event.name not in ROUTINE


def read_webhooks(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    status = request.text("status")
    chosen = DeliveryStatus(status) if status in tuple(DeliveryStatus) else None
    webhooks = list_webhooks(tx, limit=100).items
    webhook_id = request.text("webhook")
    webhook_id = webhook_id if any(webhook.id == webhook_id for webhook in webhooks) else None
    page = list_deliveries(tx, status=chosen, webhook_id=webhook_id, limit=50, cursor=request.text("cursor"))
    hosts = {webhook.id: host_of(webhook.url) for webhook in webhooks}
    pending = pending_to(tx, set(hosts.values()))
    return {
        "webhooks": [webhook_json(item) for item in webhooks],
        "pending": {id_: pending[host] for id_, host in hosts.items()},
        "pending_most": PENDING_COUNTED,
        "titles": job_titles(tx, [item.job_id for item in page.items]),
        "deliveries": [delivery_json(item) for item in page.items],
        "next_cursor": page.next_cursor,
        "status": chosen,
        "statuses": tuple(DeliveryStatus),
        "webhook_id": webhook_id,
        "called": [(webhook.id, webhook.url) for webhook in webhooks],
    }


def read_keys(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    """All keys, for callers who may manage them; others only learn that they need another key."""
    is_admin = request.scope.covers(Scope.ADMIN)
    return {"is_admin": is_admin, "keys": list_api_keys(tx) if is_admin else [], "scopes": SCOPES}


def read_new_key(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    return {"is_admin": request.scope.covers(Scope.ADMIN), "scopes": SCOPES}


def read_settings(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    settings = request.context.settings
    rows = []
    for field in dataclasses.fields(settings):
        if field.name != "origins":
            value = getattr(settings, field.name)
            text = without_secrets(_words(value))
            is_default = value == getattr(DEFAULTS, field.name)
            origin = settings.origins.get(field.name) or ("default" if is_default else "code")
            meaning = _LINK.sub(r"\1", MEANINGS.get(field.name, "")).replace("`", "")
            rows.append({"name": field.name, "value": text or "–", "origin": origin, "meaning": meaning})
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
        return ", ".join(f"{name} = {member}" for name, member in value.items())
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


HOLDERS_SHOWN = 5
PARTITIONS_SHOWN = 6


def read_limits(tx: Transaction, request: PageRequest) -> dict[str, Any]:
    limits = limits_in_force(tx)
    holders: dict[str, list[SlotHolder]] = {}
    for holder in slot_holders(tx, 1000):
        for pool in limits.covering(holder.resource, holder.type):
            holders.setdefault(pool.limit.name, []).append(holder)
    partitions: dict[str, Counter[str]] = {}
    for lease in usage(tx):
        for pool in limits.covering(lease.resource, lease.type):
            if pool.limit.per_partition or pool.limit.fair:
                partitions.setdefault(pool.limit.name, Counter())[lease.partition] += lease.amount
    rows = [
        {
            "figures": figures,
            "limit": figures.limit,
            "holders": holders.get(figures.limit.name, []),
            "partitions": partitions.get(figures.limit.name, Counter()).most_common(),
            "values": _values(figures.limit.as_dict()),
        }
        for figures in limit_figures(tx)
    ]
    return {
        "limits": rows,
        "resources": sorted(limits.resources),
        "types": [job_type.name for job_type in list_types(tx)],
        "affinities": affinity_counts(tx),
        "holders_shown": HOLDERS_SHOWN,
        "partitions_shown": PARTITIONS_SHOWN,
    }


def _values(limit: dict[str, Any]) -> dict[str, Any]:
    """The values with which the form for a change begins."""
    rate = limit["rate"] or {}
    return {"slots": limit["slots"], **{f"rate.{name}": value for name, value in rate.items()}}
