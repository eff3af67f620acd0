"""Children: how the child of a handler's `ctx.run` stands, and the parent that is woken when it has ended.

Guards WAIT-06 against both ending at once: whoever ends a child locks the unfinished jobs of its parent's chain, and a
parent that ends its run to wait holds the same lock when it looks whether the child has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdbeat.domain.waits import WaitKind
from holdbeat.store.durable.signals import open_if, unfinished_jobs
from holdbeat.store.reads.children import child_standing
from holdbeat.store.transaction import Transaction


def look_for_child(tx: Transaction, child_id: str) -> dict[str, Any]:
    """How a child stands: {is_over: False}, or {is_over: True, status, result, error}."""
    return child_standing(tx, [child_id])[child_id]


def wake_parents(tx: Transaction, child_ids: Sequence[str]) -> None:
    """Opens the jobs whose handlers wait for these children, which have ended; each is named by its first job."""
    rows = tx.rows("SELECT id, parent_id FROM jobs WHERE id IN :ids AND parent_id IS NOT NULL", ids=list(child_ids))
    ended = {row[0] for row in rows}
    for parent_id in sorted({row[1] for row in rows}):
        open_if(
            tx,
            unfinished_jobs(tx, parent_id),
            lambda wait: wait["kind"] == WaitKind.CHILD and wait["job_id"] in ended,
        )
