"""Making children: the jobs that a handler submits, once in its whole chain (WAIT-06, WAIT-07)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.submission import Submission
from holdbeat.store.durable.steps import ChainCall, keep_outcome, lease_gone, lock_lease, outcome_of
from holdbeat.store.jobs.submit import submit
from holdbeat.store.reads.chains import roots_of
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


_UPSTREAMS = (
    "WITH RECURSIVE upstream(id) AS (SELECT upstream_id FROM dependencies WHERE job_id = :child_id AND met_at IS NULL "
    "UNION SELECT coalesce(d.upstream_id, member.id, earlier.id, awaited.value ->> 'job_id') FROM upstream "
    "LEFT JOIN dependencies d ON d.job_id = upstream.id AND d.met_at IS NULL "
    # A group waits for its members,
    "LEFT JOIN jobs member ON member.group_id = upstream.id "
    # a member of a sequential group for the one before it,
    "LEFT JOIN jobs own ON own.id = upstream.id "
    "LEFT JOIN job_groups g ON g.id = own.group_id AND g.mode = 'sequential' "
    "LEFT JOIN jobs earlier ON earlier.group_id = g.id AND earlier.sequence = own.sequence - 1 "
    # and a handler for the children of its `ctx.run`, as long as its chain has not ended.
    "LEFT JOIN steps awaited ON awaited.root_id = coalesce(own.root_id, own.id) AND awaited.name LIKE '$child:%' "
    "AND CAST(awaited.value ->> 'is_awaited' AS text) IN ('true', '1') "
    "AND (own.status IN ('QUEUED', 'RUNNING') OR EXISTS (SELECT 1 FROM jobs tip WHERE tip.root_id IS NOT NULL "
    "AND tip.root_id = coalesce(own.root_id, own.id) AND tip.status IN ('QUEUED', 'RUNNING'))) "
    "WHERE coalesce(d.upstream_id, member.id, earlier.id, awaited.value ->> 'job_id') IS NOT NULL)"
)
"""What must end before a child can start."""


def _refuse_circle(tx: Transaction, child_id: str, root_id: str) -> None:
    """Refuses a child that can only start when a chain has ended that waits for the child."""
    waiting = _waiting_for(tx, root_id)
    sql = f"{_UPSTREAMS} SELECT id FROM upstream WHERE id IN :waiting"
    circle = tx.rows(sql, child_id=child_id, waiting=list(waiting))
    if circle:
        raise Invalid(
            f"The child would wait for the end of {waiting[circle[0][0]]} that waits for it, because of what it names "
            "in after. Leave that out, or submit it with ctx.enqueue.",
            code="circle",
            field="after",
        )


def _waiting_for(tx: Transaction, root_id: str) -> dict[str, str]:
    """The chains that cannot end before this one, in words by id: itself, the parent that waits for it in `ctx.run`,
    and so on upwards."""
    waiting: dict[str, str] = {}
    chain: str | None = root_id
    while chain is not None:
        heads = _unfinished_heads(tx, chain)
        waiting |= dict.fromkeys(heads, "a job above" if waiting else "the job")
        # Nobody waits for a manual retry of a child.
        chain = _awaiting_parent(tx, chain) if chain in heads else None
    return waiting


def _unfinished_heads(tx: Transaction, root_id: str) -> set[str]:
    """The first job of an unfinished chain, and of its unfinished manual retries, which keep its steps."""
    unfinished = tx.column(
        "SELECT id FROM jobs WHERE id = :id AND status IN ('QUEUED', 'RUNNING') UNION ALL SELECT id FROM jobs "
        "WHERE root_id = :id AND root_id IS NOT NULL AND status IN ('QUEUED', 'RUNNING')",
        id=root_id,
    )
    return set(roots_of(tx, unfinished).values())


def _awaiting_parent(tx: Transaction, child_id: str) -> str | None:
    """The parent whose handler has made this child in order to wait for it."""
    parent_id = tx.column("SELECT parent_id FROM jobs WHERE id = :id", id=child_id)[0]
    if parent_id is None:
        return None
    outcomes = tx.column("SELECT value FROM steps WHERE root_id = :id AND name LIKE '$child:%'", id=parent_id)
    is_awaited = any(json.loads(text) == {"job_id": child_id, "is_awaited": True} for text in outcomes)
    return parent_id if is_awaited else None
