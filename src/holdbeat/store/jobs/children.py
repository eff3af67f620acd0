"""Making children: the jobs that a handler submits, once in its whole chain (WAIT-06, WAIT-07)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.submission import Submission
from holdbeat.store.durable.steps import ChainCall, keep_outcome, lease_gone, lock_lease, outcome_of
from holdbeat.store.jobs.submit import submit
from holdbeat.store.reads.children import child_standing
from holdbeat.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class ChildCall(ChainCall):
    """A child to be made. The chain keeps its id."""

    request: dict[str, Any]
    is_detached: bool = False
    is_awaited: bool = False
    """Whether the handler will wait for its end."""


def make_child(tx: Transaction, call: ChildCall) -> str:
    """The id of the child: made now, or by an earlier attempt of the chain.

    Refused with LeaseGone if the lease is gone or the parent was cancelled: a cancel locks the job, and then sees all
    of its children.
    """
    is_held = lock_lease(tx, call)
    parent = tx.one("SELECT status FROM jobs WHERE id = :id FOR UPDATE", id=call.job_id)
    if not is_held or parent is None or parent[0] != "RUNNING":
        raise lease_gone(call.key)
    outcome = outcome_of(tx, call)
    if outcome is not None:
        return str(outcome["job_id"])
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
    if call.is_awaited and submission.own.get("after"):
        _refuse_circle(tx, child_id, call.root_id)
    keep_outcome(tx, call, {"job_id": child_id, "is_awaited": call.is_awaited})
    return child_id


def _refuse_circle(tx: Transaction, child_id: str, root_id: str) -> None:
    """Refuses a child that can only start when a chain or group has ended that waits for the child."""
    waiting = _waiting_for(tx, root_id)
    circle = tx.rows(
        "WITH RECURSIVE upstream(id) AS (SELECT upstream_id FROM dependencies WHERE job_id = :child_id "
        # A group waits for its members.
        "UNION SELECT coalesce(d.upstream_id, member.id) FROM upstream LEFT JOIN dependencies d "
        "ON d.job_id = upstream.id LEFT JOIN jobs member ON member.group_id = upstream.id "
        "WHERE d.upstream_id IS NOT NULL OR member.id IS NOT NULL) "
        "SELECT id FROM upstream WHERE id IN :waiting",
        child_id=child_id,
        waiting=list(waiting),
    )
    if circle:
        raise Invalid(
            f"The child would wait for the end of {waiting[circle[0][0]]} that waits for it. Leave that out of after, "
            "or submit it with ctx.enqueue.",
            code="circle",
            field="after",
        )


def _waiting_for(tx: Transaction, root_id: str) -> dict[str, str]:
    """What cannot end before this chain, in words by id: itself, its group, later members of a sequential one, the
    parent that waits for it in `ctx.run`, and so on upwards."""
    waiting: dict[str, str] = {}
    chain: str | None = root_id
    whose = ""
    while chain is not None:
        waiting[chain] = f"the job{whose}"
        rows = tx.rows(
            "SELECT g.id, later.id FROM jobs j JOIN job_groups g ON g.id = j.group_id "
            "LEFT JOIN jobs later ON later.group_id = g.id AND g.mode = 'sequential' AND later.sequence > j.sequence "
            "WHERE j.id = :id",
            id=chain,
        )
        for group_id, later_id in rows:
            waiting |= {group_id: f"the group of the job{whose}"}
            if later_id is not None:
                waiting[later_id] = f"a later member of the group of the job{whose}"
        chain, whose = _awaiting_parent(tx, chain), " above"
    return waiting


def _awaiting_parent(tx: Transaction, child_id: str) -> str | None:
    """The parent whose handler has made this child in order to wait for it, and is not over."""
    parent_id = tx.column("SELECT parent_id FROM jobs WHERE id = :id", id=child_id)[0]
    if parent_id is None or child_standing(tx, [parent_id])[parent_id]["is_over"]:
        return None
    outcomes = tx.column("SELECT value FROM steps WHERE root_id = :id AND name LIKE '$child:%'", id=parent_id)
    is_awaited = any(json.loads(text) == {"job_id": child_id, "is_awaited": True} for text in outcomes)
    return parent_id if is_awaited else None
