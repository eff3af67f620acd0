"""Webhook deliveries of operational Events, for who watches the scheduler (ALR-01).

Called for every transaction that records such an Event, whoever records it, so that none can be silent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdbeat.domain.clock import iso
from holdbeat.domain.webhook import OPERATIONAL_EVENTS
from holdbeat.store.delivery_rows import (
    SUBSCRIPTIONS,
    NewDelivery,
    insert_deliveries,
    payload_of,
    subscriptions_of,
)
from holdbeat.store.event_batches import EVENT_COLUMNS

if TYPE_CHECKING:
    from holdbeat.store.transaction import Row, Transaction


def tell_subscribers(tx: Transaction, noted: Sequence[Row]) -> None:
    """Writes the deliveries of operational Events that this transaction recorded."""
    told = [row for row in noted if row[0] in OPERATIONAL_EVENTS]
    if not told:
        return
    subscriptions = subscriptions_of(tx.rows(SUBSCRIPTIONS, yes=True))
    deliveries = [
        NewDelivery(row[0], subscription.url, _payload(tx, row), subscription.id, job_id=row[2], group_id=row[5])
        for subscription in subscriptions
        for row in told
        if subscription.takes(row[0])
    ]
    insert_deliveries(tx, deliveries)


def _payload(tx: Transaction, row: Row) -> str:
    event = dict(zip(EVENT_COLUMNS, row, strict=True))
    event["at"] = iso(event["at"])
    event["data"] = json.loads(event["data"]) if event["data"] else {}
    return payload_of(tx, row[0], {"event": event})
