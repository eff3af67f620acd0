"""Events that are not part of every job's or schedule's life, found by the index `events_rare`.

Guards ALR-04: counters of operational Events are the rows of the log itself, so that no two transactions wait for each
other to count. What retention takes from the log is added to a number in `meta`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdbeat.domain.webhook import OPERATIONAL_EVENTS
from holdbeat.store import meta
from holdbeat.store.transaction import Transaction

HOT_EVENTS = (
    "job.queued", "job.claimed", "run.ended", "job.continued", "retry.created", "schedule.fired",
    "schedule.planned", "reservation.requested", "reservation.granted", "reservation.released",
)  # fmt: skip
"""Events that every job, schedule or direct request has."""
RARE = f"name NOT IN ({', '.join(map(repr, HOT_EVENTS))})"
"""The condition of the index, in its words: planners compare the texts."""
COUNTED = "events.count."
"""How many Events of a name were pruned, under this key and the name in `meta`."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The Events of one name after a place in the log."""

    count: int
    first_at: datetime
    last_at: datetime
    last_id: int
    last: dict[str, Any]
    """The newest: job_id, worker_id, schedule_id and its data as text."""


def event_counts(tx: Transaction) -> dict[str, int]:
    """How many operational Events of each name this store has had, by any process."""
    names = list(OPERATIONAL_EVENTS)
    counts = dict.fromkeys(names, 0)
    logged = tx.rows(f"SELECT name, count(*) FROM events WHERE {RARE} AND name IN :names GROUP BY name", names=names)
    pruned = meta.get_many(tx, [f"{COUNTED}{name}" for name in names])
    for name, count in [*logged, *((key.removeprefix(COUNTED), value) for key, value in pruned.items())]:
        counts[name] += int(count)
    return counts


def count_pruned(tx: Transaction, names: Sequence[str]) -> None:
    """Keeps the number of operational Events that leave the log."""
    for name in OPERATIONAL_EVENTS:
        count = names.count(name)
        if count:
            meta.add(tx, f"{COUNTED}{name}", count)


def tally(tx: Transaction, name: str, after: int, since: datetime) -> Tally | None:
    """The Events of a name after an id and an instant; None if there are none."""
    row = tx.one(
        f"SELECT count(*), min(at), max(at), max(id) FROM events WHERE {RARE} AND name = :name AND id > :after "
        "AND at >= :since",
        name=name,
        after=after,
        since=since,
    )
    if row is None or not row[0]:
        return None
    last = tx.one(
        f"SELECT job_id, worker_id, schedule_id, data FROM events WHERE {RARE} AND name = :name AND id = :id",
        name=name,
        id=row[3],
    )
    assert last is not None
    newest = dict(zip(("job_id", "worker_id", "schedule_id", "data"), last, strict=True))
    return Tally(int(row[0]), tx.instant(row[1]), tx.instant(row[2]), int(row[3]), newest)


def has_clock_jumped(tx: Transaction, since: datetime) -> bool:
    """Whether any process has seen a clock jump; a machine whose clock is only apart from the database's is none."""
    rows = tx.rows(f"SELECT data FROM events WHERE {RARE} AND name = 'clock.jumped' AND at >= :since", since=since)
    return any(json.loads(row[0])["clock"] != "skew" for row in rows)
