"""Operational Events for who watches the scheduler: webhook deliveries, and counters that outlive the log (ALR-01).

Called for every transaction that records such an Event, whoever records it, so that none can be silent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdbeat.domain.clock import iso
from holdbeat.domain.params import dumps
from holdbeat.domain.webhook import OPERATIONAL_EVENTS, host_of
from holdbeat.store import meta
from holdbeat.store.topics import Topic

if TYPE_CHECKING:
    from holdbeat.store.transaction import Row, Transaction

_FIELDS = ("name", "at", "job_id", "run_id", "worker_id", "group_id", "schedule_id", "data")
_COLUMNS = (
    "webhook_id",
    "job_id",
    "group_id",
    "event",
    "url",
    "payload",
    "id",
    "host",
    "created_at",
    "next_attempt_at",
)
COUNTED = "events.count."
"""The number of all Events of a name, under this key and the name in `meta`."""


def tell_subscribers(tx: Transaction, noted: Sequence[Row]) -> None:
    """Writes the deliveries of operational Events that this transaction recorded, and counts them."""
    told = [row for row in noted if row[0] in OPERATIONAL_EVENTS]
    if not told:
        return
    for name, count in sorted(Counter(row[0] for row in told).items()):
        meta.add(tx, f"{COUNTED}{name}", count)
    rows: list[tuple[Any, ...]] = []
    for webhook_id, url, names in tx.rows("SELECT id, url, events FROM webhooks WHERE enabled = :yes", yes=True):
        chosen = None if names is None else json.loads(names)
        rows += [
            (webhook_id, row[2], row[5], row[0], url, _payload(tx, row))
            for row in told
            if not chosen or row[0] in chosen
        ]
    if rows:
        ids = tx.new_ids(len(rows))
        tx.insert(
            "deliveries",
            _COLUMNS,
            [(*row, new_id, host_of(row[4]), tx.now, tx.now) for row, new_id in zip(rows, ids, strict=True)],
        )
        tx.wake(Topic.DELIVERIES)


def _payload(tx: Transaction, row: Row) -> str:
    event = dict(zip(_FIELDS, row, strict=True))
    event["at"] = iso(event["at"])
    event["data"] = json.loads(event["data"]) if event["data"] else {}
    return dumps({"type": row[0], "timestamp": iso(tx.now), "data": {"event": event}})


def event_counts(tx: Transaction) -> dict[str, int]:
    """How many operational Events of each name this store has had, by any process."""
    counts = meta.get_many(tx, [f"{COUNTED}{name}" for name in OPERATIONAL_EVENTS])
    return {name: int(counts.get(f"{COUNTED}{name}", 0)) for name in OPERATIONAL_EVENTS}
