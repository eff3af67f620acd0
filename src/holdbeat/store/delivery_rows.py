"""New webhook deliveries as rows, and the subscriptions that they are made for.

Those of operational Events are written with every transaction that records one, so that none can be silent (ALR-01).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdbeat.domain.clock import iso
from holdbeat.domain.params import dumps
from holdbeat.domain.webhook import OPERATIONAL_EVENTS, host_of
from holdbeat.store.event_batches import EVENT_COLUMNS
from holdbeat.store.topics import Topic

if TYPE_CHECKING:
    from holdbeat.store.transaction import Row, Transaction

SUBSCRIPTIONS = "SELECT id, url, events FROM webhooks WHERE enabled = :yes"


class Subscription(NamedTuple):
    """A receiver of messages of these events; None stands for all events."""

    id: str
    url: str
    events: frozenset[str] | None

    def takes(self, event: str) -> bool:
        return self.events is None or event in self.events


class NewDelivery(NamedTuple):
    """One message to one receiver; `webhook_id` is None where a job named the URL itself."""

    event: str
    url: str
    payload: str
    webhook_id: str | None = None
    job_id: str | None = None
    group_id: str | None = None


def subscriptions_of(rows: Sequence[Row]) -> list[Subscription]:
    """The rows of SUBSCRIPTIONS."""
    return [Subscription(id, url, frozenset(json.loads(events)) if events else None) for id, url, events in rows]


def payload_of(tx: Transaction, event: str, data: dict[str, Any]) -> str:
    """The message as it is sent."""
    return dumps({"type": event, "timestamp": iso(tx.now), "data": data})


def insert_deliveries(tx: Transaction, deliveries: Sequence[NewDelivery]) -> list[str]:
    """Stores messages to be sent, wakes the WebhookService, and returns their ids."""
    if not deliveries:
        return []
    ids = tx.new_ids(len(deliveries))
    tx.insert(
        "deliveries",
        (*NewDelivery._fields, "id", "host", "created_at", "next_attempt_at"),
        [(*new, new_id, host_of(new.url), tx.now, tx.now) for new, new_id in zip(deliveries, ids, strict=True)],
    )
    tx.wake(Topic.DELIVERIES)
    return ids


def tell_subscribers(tx: Transaction, event_rows: Sequence[Row]) -> None:
    """Writes the deliveries of operational Events that this transaction recorded."""
    operational = [row for row in event_rows if row[0] in OPERATIONAL_EVENTS]
    if not operational:
        return
    subscriptions = subscriptions_of(tx.rows(SUBSCRIPTIONS, yes=True))
    deliveries = [
        NewDelivery(row[0], subscription.url, _payload(tx, row), subscription.id, job_id=row[2], group_id=row[5])
        for subscription in subscriptions
        for row in operational
        if subscription.takes(row[0])
    ]
    insert_deliveries(tx, deliveries)


def _payload(tx: Transaction, row: Row) -> str:
    event = dict(zip(EVENT_COLUMNS, row, strict=True))
    event["at"] = iso(event["at"])
    event["data"] = json.loads(event["data"]) if event["data"] else {}
    return payload_of(tx, row[0], {"event": event})
