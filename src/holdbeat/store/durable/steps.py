"""Steps: the values that the handlers of a chain keep.

Guards STEP-03: a value is written only under a lease that its worker still holds, and the first one of a name stays.
Steps of handlers that wait at the same time are written by one statement in one commit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from holdbeat.domain.errors import Conflict, NotFound
from holdbeat.domain.params import dumps
from holdbeat.domain.steps import Step
from holdbeat.store.reads.chains import STEP_ORDER
from holdbeat.store.transaction import Row, Transaction
from holdbeat.store.work import CoalescedInsert


class StepEntry(NamedTuple):
    """A value to be kept, and the lease under which it was made."""

    lease_id: str
    worker_id: str
    fence: int
    root_id: str
    name: str
    value: str
    """JSON."""
    started_at: datetime
    duration_s: float


@dataclass(frozen=True, slots=True)
class ChainCall:
    """A call that a handler makes once in its chain, with the lease under which it does."""

    lease_id: str
    worker_id: str
    fence: int
    job_id: str
    root_id: str
    key: str
    """The name under which the chain keeps the outcome."""


class LeaseGone(Conflict):
    """The run has lost its lease: nothing that it does is kept."""

    default_code = "lease_lost"


_KEEP = (
    "INSERT INTO steps (root_id, name, value, size, started_at, duration_s, run_id, kept_at) "
    "SELECT e.root_id, e.name, e.value, e.size, e.started_at, e.duration_s, e.run_id, :now "
    "FROM rows(:entries; root_id text, name text, value json, size int, started_at time, duration_s real, run_id text, "
    "worker_id text, fence int) AS e WHERE EXISTS (SELECT 1 FROM leases AS l WHERE l.id = e.run_id "
    "AND l.worker_id || '' = e.worker_id AND l.fence = e.fence FOR KEY SHARE) ON CONFLICT (root_id, name) DO NOTHING"
)
"""The leases are locked, so that no recovery can take one away between this look and the write.

Each is sought by its id. PostgreSQL takes a worker's leases to be few: joined, or by an index of the workers, it would
compare each of them with each entry.
"""


def _row_of(entry: StepEntry) -> Row:
    lease_id, worker_id, fence, root_id, name, value, started_at, duration_s = entry
    size = len(value) if value.isascii() else len(value.encode())
    return root_id, name, value, size, started_at, duration_s, lease_id, worker_id, fence


def _refused(tx: Transaction, entries: list[StepEntry]) -> list[str | Exception]:
    """The value that is kept of each step, or LeaseGone."""
    kept, held = _kept(tx, entries), _held(tx, entries)
    results: list[str | Exception] = []
    for entry in entries:
        value = kept.get((entry.root_id, entry.name))
        is_held = (entry.lease_id, entry.worker_id, entry.fence) in held
        results.append(value if is_held and value is not None else lease_gone(entry.name))
    return results


keep_step: CoalescedInsert[StepEntry, str] = CoalescedInsert(
    _KEEP, _row_of, lambda entry: entry.value, _refused, lambda entry: entry.lease_id
)
"""Keeps the value of a step that has none yet, and answers the value that is kept: its own, or an earlier one.

An entry whose lease is gone is refused with LeaseGone.
"""


def lease_gone(name: str) -> LeaseGone:
    return LeaseGone(f"The step {name!r} was refused: the lease of this run is gone, and another run may have begun.")


def lock_lease(tx: Transaction, call: ChainCall) -> bool:
    """Whether the lease is still held. If it is, recovery cannot end it before this transaction has ended."""
    rows = tx.rows(
        "SELECT id FROM leases WHERE id = :id AND worker_id = :worker AND fence = :fence FOR KEY SHARE",
        id=call.lease_id,
        worker=call.worker_id,
        fence=call.fence,
    )
    return bool(rows)


def outcome_of(tx: Transaction, call: ChainCall) -> dict[str, Any] | None:
    """The kept outcome of a call in the chain; None if there is none."""
    row = tx.one("SELECT value FROM steps WHERE root_id = :id AND name = :key", id=call.root_id, key=call.key)
    return None if row is None else json.loads(row[0])


def keep_outcome(tx: Transaction, call: ChainCall, outcome: dict[str, Any]) -> None:
    """Keeps what a call has come to, for later attempts of the chain."""
    text = dumps(outcome)
    tx.insert(
        "steps",
        ("root_id", "name", "value", "size", "started_at", "duration_s", "run_id", "kept_at"),
        [(call.root_id, call.key, text, len(text), tx.now, 0.0, call.lease_id, tx.now)],
    )


def kept_values(tx: Transaction, root_id: str) -> dict[str, str]:
    """The values of a chain by name, as JSON."""
    return dict(tx.rows("SELECT name, value FROM steps WHERE root_id = :id", id=root_id))


def list_steps(tx: Transaction, root_id: str) -> list[Step]:
    """The steps of a chain in the order in which they were kept (STEP_ORDER)."""
    rows = tx.rows(
        "SELECT name, value, size, started_at, duration_s, run_id FROM steps WHERE root_id = :id "
        f"AND name NOT LIKE '$%' ORDER BY {', '.join(STEP_ORDER)}",
        id=root_id,
    )
    return [Step(row[0], json.loads(row[1]), row[2], tx.instant(row[3]), row[4], row[5]) for row in rows]


def drop_steps(tx: Transaction, root_id: str, from_step: str | None = None) -> None:
    """Drops the steps of a chain, or one and those that were kept after it. Refused while a job of the chain is
    unfinished, whose handler may have seen them."""
    busy = tx.one(
        "SELECT id FROM jobs WHERE root_id = :id AND root_id IS NOT NULL AND status IN ('QUEUED', 'RUNNING')",
        id=root_id,
    )
    if busy is not None:
        raise Conflict(
            f"Job {busy[0]} of the same chain is unfinished and needs its steps. Cancel it first, or keep the steps.",
            code="not_finished",
            job_id=busy[0],
        )
    names = split_steps(tx, root_id, from_step)[1]
    tx.execute("DELETE FROM steps WHERE root_id = :id AND name IN :names", id=root_id, names=names)


def split_steps(tx: Transaction, root_id: str, from_step: str | None) -> tuple[list[str], list[str]]:
    """The names of the kept steps of a chain before one, and from it on; all are in the second list without one."""
    names = tx.column(f"SELECT name FROM steps WHERE root_id = :id ORDER BY {', '.join(STEP_ORDER)}", id=root_id)
    if from_step is None:
        return [], names
    if from_step not in names:
        raise NotFound(f"The chain of job {root_id} has kept no step {from_step!r}.", code="unknown_step")
    place = names.index(from_step)
    return names[:place], names[place:]


def _kept(tx: Transaction, entries: list[StepEntry]) -> dict[tuple[str, str], str]:
    rows = tx.rows(
        "SELECT s.root_id, s.name, s.value FROM steps s JOIN rows(:keys; root_id text, name text) AS k "
        "ON s.root_id = k.root_id AND s.name = k.name",
        keys=sorted({(entry.root_id, entry.name) for entry in entries}),
    )
    return {(row[0], row[1]): row[2] for row in rows}


def _held(tx: Transaction, entries: list[StepEntry]) -> set[tuple[str, str, int]]:
    rows = tx.rows(
        "SELECT id, worker_id, fence FROM leases WHERE id IN :ids", ids=sorted({entry.lease_id for entry in entries})
    )
    return {(row[0], row[1], row[2]) for row in rows}
