"""Making children: the jobs that a handler submits, once in its whole chain (WAIT-06, WAIT-07)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import dumps
from holdbeat.domain.submission import Submission
from holdbeat.store.durable.steps import lease_gone
from holdbeat.store.jobs.submit import submit
from holdbeat.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class ChildCall:
    """A child to be made, and the lease under which its parent runs."""

    lease_id: str
    worker_id: str
    fence: int
    job_id: str
    root_id: str
    key: str
    """The name under which the chain keeps which job the child is."""
    request: dict[str, Any]
    is_detached: bool = False
    is_awaited: bool = False
    """Whether the handler will wait for its end."""


def make_child(tx: Transaction, call: ChildCall) -> str:
    """The id of the child: made now, or by an earlier attempt of the chain.

    Refused with LeaseGone if the lease is gone or the parent was cancelled: a cancel locks the job, and then sees all
    of its children.
    """
    held = tx.rows(
        "SELECT id FROM leases WHERE id = :id AND worker_id = :worker AND fence = :fence FOR KEY SHARE",
        id=call.lease_id,
        worker=call.worker_id,
        fence=call.fence,
    )
    parent = tx.one("SELECT status FROM jobs WHERE id = :id FOR UPDATE", id=call.job_id)
    if not held or parent is None or parent[0] != "RUNNING":
        raise lease_gone(call.key)
    kept = tx.one("SELECT value FROM steps WHERE root_id = :id AND name = :key", id=call.root_id, key=call.key)
    if kept is not None:
        return str(json.loads(kept[0])["job_id"])
    submission = Submission.read(call.request)
    if call.is_awaited and (submission.idempotency_key is not None or "unique_key" in submission.own):
        raise Invalid(
            "The child of ctx.run is always a job of its own: leave out key and unique_key, or use ctx.enqueue.",
            code="child_with_key",
            field="unique_key",
        )
    submission.parent_id, submission.is_detached = call.root_id, call.is_detached
    submission.is_awaited = call.is_awaited
    submission.actor = f"job {call.job_id}"
    child_id = submit(tx, [submission]).jobs[0].id
    text = dumps({"job_id": child_id})
    tx.insert(
        "steps",
        ("root_id", "name", "value", "size", "started_at", "duration_s", "run_id", "kept_at"),
        [(call.root_id, call.key, text, len(text), tx.now, 0.0, call.lease_id, tx.now)],
    )
    return child_id
