"""Children: how the child of a handler's `ctx.run` stands, and the parent that is woken when it has ended.

Guards WAIT-06 against both ending at once: whoever ends a child locks the unfinished jobs of its parent's chain, and a
parent that ends its run to wait holds the same lock when it looks whether the child has ended.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdbeat.domain.waits import WaitKind
from holdbeat.store.durable.continuing import open_waiting
from holdbeat.store.durable.signals import unfinished_jobs
from holdbeat.store.reads.children import child_standing
from holdbeat.store.transaction import Transaction


def look_for_child(tx: Transaction, child_id: str) -> dict[str, Any]:
    """How a child stands: {is_over: False}, or {is_over: True, status, result, error}."""
    return child_standing(tx, [child_id])[child_id]


def wake_parents(tx: Transaction, child_ids: Sequence[str]) -> None:
    """Opens the jobs whose handlers wait for these children, which have ended; each is named by its first job."""
    rows = tx.rows("SELECT id, parent_id FROM jobs WHERE id IN :ids AND parent_id IS NOT NULL", ids=list(child_ids))
    children: dict[str, set[str]] = {}
    for child_id, parent_id in rows:
        children.setdefault(parent_id, set()).add(child_id)
    for parent_id in sorted(children):
        waiting = [
            job_id
            for job_id, status, waits in unfinished_jobs(tx, parent_id)
            if status == "QUEUED" and _waits_for(waits, children[parent_id])
        ]
        if waiting:
            open_waiting(tx, waiting)


def _waits_for(waits: str | None, child_ids: set[str]) -> bool:
    return any(wait["kind"] == WaitKind.CHILD and wait["job_id"] in child_ids for wait in json.loads(waits or "[]"))
