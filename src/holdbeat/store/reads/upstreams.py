"""Reading dependencies: what a chain depends on, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdbeat.domain.dependencies import Edge
from holdbeat.store.reads.chains import completed_retries, tips_by_root
from holdbeat.store.transaction import Transaction


def edges_of(tx: Transaction, chain_ids: Sequence[str]) -> dict[str, list[Edge]]:
    """The dependencies of chains by the id of their first job, in the order in which they were given."""
    edges: dict[str, list[Edge]] = {}
    for chain_id, upstream_id, is_group, name, met_at, outcome in tx.rows(
        "SELECT job_id, upstream_id, is_group, name, met_at, outcome FROM dependencies WHERE job_id IN :ids "
        "ORDER BY job_id, number",
        ids=sorted(set(chain_ids)),
    ):
        edges.setdefault(chain_id, []).append(Edge(upstream_id, bool(is_group), name, tx.time(met_at), outcome))
    return edges


def upstream_results(tx: Transaction, chain_id: str) -> list[dict[str, Any]]:
    """The upstreams as a handler reads them: {name, id, status, result} each; of a group {job id: result}.

    A job that did not complete itself, but in a manual retry or a rerun, is read as that.
    """
    edges = edges_of(tx, [chain_id]).get(chain_id, [])
    broken = [edge.upstream_id for edge in edges if not edge.is_group and edge.outcome != "COMPLETED"]
    retries = completed_retries(tx, broken)
    jobs = _job_results(tx, [edge.upstream_id for edge in edges if not edge.is_group], retries)
    groups = _group_results(tx, [edge.upstream_id for edge in edges if edge.is_group])
    return [
        {
            "name": edge.name,
            "id": edge.upstream_id,
            "status": "COMPLETED" if edge.upstream_id in retries else edge.outcome,
            "result": (groups if edge.is_group else jobs).get(edge.upstream_id),
        }
        for edge in edges
    ]


def _job_results(tx: Transaction, root_ids: Sequence[str], retries: Mapping[str, str]) -> dict[str, Any]:
    """The results of chains by the id of their first job: that of its retry, or of the last job."""
    tips = tips_by_root(tx, root_ids) | dict(retries)
    if not tips:
        return {}
    rows = tx.rows("SELECT job_id, artifacts -> 'result' FROM job_runs WHERE job_id IN :ids", ids=sorted(tips.values()))
    results = {row[0]: _value(row[1]) for row in rows}
    return {root_id: results.get(tip_id) for root_id, tip_id in tips.items()}


def _group_results(tx: Transaction, group_ids: Sequence[str]) -> dict[str, list[Any]]:
    """For each group the results of its members in their order; None for one that did not complete."""
    results: dict[str, list[Any]] = {}
    if not group_ids:
        return results
    for group_id, artifacts in tx.rows(
        "SELECT j.group_id, r.artifacts -> 'result' FROM jobs j LEFT JOIN job_runs r ON r.job_id = j.id "
        "WHERE j.group_id IN :ids AND j.retried_by IS NULL ORDER BY j.group_id, j.sequence, j.id",
        ids=list(group_ids),
    ):
        results.setdefault(group_id, []).append(_value(artifacts))
    return results


def _value(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else text
