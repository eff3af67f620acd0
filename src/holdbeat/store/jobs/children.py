"""Making children: the jobs that a handler submits, once in its whole chain (WAIT-06, WAIT-07)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdbeat.domain.errors import Invalid
from holdbeat.domain.submission import Submission
from holdbeat.store.durable.steps import ChainCall, keep_outcome, lease_gone, lock_lease, outcome_of
from holdbeat.store.jobs.submit import submit
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
    parent = tx.one("SELECT status, group_id FROM jobs WHERE id = :id FOR UPDATE", id=call.job_id)
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
        _refuse_circle(tx, child_id, call.root_id, parent[1])
    keep_outcome(tx, call, {"job_id": child_id})
    return child_id


def _refuse_circle(tx: Transaction, child_id: str, root_id: str, group_id: str | None) -> None:
    """Refuses a child that can only start when the chain that waits for it has ended."""
    circle = tx.rows(
        "WITH RECURSIVE upstream(id) AS (SELECT upstream_id FROM dependencies WHERE job_id = :child_id "
        "UNION SELECT d.upstream_id FROM upstream JOIN dependencies d ON d.job_id = upstream.id) "
        "SELECT id FROM upstream WHERE id IN :own",
        child_id=child_id,
        own=[root_id] if group_id is None else [root_id, group_id],
    )
    if circle:
        what = "the job" if circle[0][0] == root_id else "the group of the job"
        raise Invalid(
            f"The child would wait for the end of {what} that waits for it. Leave that out of after, or submit it with "
            "ctx.enqueue.",
            code="circle",
            field="after",
        )
