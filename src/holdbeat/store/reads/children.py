"""Reading children: the jobs that handlers have made, and how they stand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdbeat.store.reads.chains import tips_by_root
from holdbeat.store.transaction import Transaction


def child_standing(tx: Transaction, child_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each child {is_over: False}, or {is_over: True, status, result, error} once its chain has ended."""
    tips = tips_by_root(tx, child_ids)
    rows = tx.rows(
        "SELECT j.id, j.status, j.permanently_failed, j.cancel_reason, r.error, r.artifacts -> 'result', l.id "
        "FROM jobs j LEFT JOIN job_runs r ON r.job_id = j.id LEFT JOIN leases l ON l.job_id = j.id WHERE j.id IN :ids",
        ids=sorted(tips.values()),
    )
    by_id = {row[0]: row for row in rows}
    standings: dict[str, dict[str, Any]] = {}
    for child_id in child_ids:
        row = by_id.get(tips.get(child_id, ""))
        if row is None:
            standings[child_id] = {"is_over": True, "status": "GONE", "result": None, "error": "it was deleted"}
            continue
        _, status, failed_for_good, cancel_reason, error, result, lease_id = row
        is_over = status in ("COMPLETED", "SKIPPED", "CANCELLED") or (status == "FAILED" and bool(failed_for_good))
        if not is_over or lease_id is not None:
            standings[child_id] = {"is_over": False}
            continue
        value = json.loads(result) if isinstance(result, str) else result
        standings[child_id] = {
            "is_over": True,
            "status": status,
            "result": value,
            "error": error or cancel_reason,
        }
    return standings


def descendants_of(tx: Transaction, chain_ids: Sequence[str]) -> list[str]:
    """The unfinished jobs that the handlers of these chains have made, and theirs, without detached ones."""
    below = tx.rows(
        "WITH RECURSIVE below(id) AS ("
        " SELECT id FROM jobs WHERE parent_id IN :ids AND parent_id IS NOT NULL AND NOT is_detached"
        # CROSS JOIN keeps SQLite from reading the children of everybody first.
        " UNION SELECT j.id FROM below CROSS JOIN jobs j WHERE j.parent_id = below.id"
        " AND j.parent_id IS NOT NULL AND NOT j.is_detached)"
        " SELECT id FROM below",
        ids=sorted(set(chain_ids)),
    )
    if not below:
        return []
    # Apart from the walk: SQLite would rather read all jobs than the few that it has found.
    return tx.column(
        "SELECT id FROM jobs WHERE id IN :ids AND status IN ('QUEUED', 'RUNNING') ORDER BY id",
        ids=[row[0] for row in below],
    )
