"""How many chains wait for something else than a slot, and for what."""

from __future__ import annotations

from holdbeat.domain.waits import UPSTREAM, WaitKind
from holdbeat.store.transaction import Transaction


def wait_counts(tx: Transaction) -> dict[str, int]:
    """Chains by what their handlers wait for, and jobs that wait for others; of many as they were a few seconds ago."""
    return tx.terms.counts.get("waits", lambda: _wait_counts(tx))


def _wait_counts(tx: Transaction) -> tuple[dict[str, int], int]:
    counts = dict.fromkeys((*map(str, WaitKind), UPSTREAM), 0)
    # A chain that waits has a job before it: that index has no other jobs than these, retries and what runs.
    for kind, amount in tx.rows(
        "SELECT waits -> 0 ->> 'kind', count(*) FROM jobs INDEXED BY jobs_chain WHERE root_id IS NOT NULL "
        "AND status IN ('QUEUED', 'RUNNING') AND status = 'QUEUED' AND hold IN (1, 4) AND waits IS NOT NULL "
        "AND (not_before IS NULL OR not_before > :now) GROUP BY 1",
        now=tx.now,
    ):
        counts[kind] = int(amount)
    chains = sum(counts.values())
    # In SQLite a CROSS JOIN keeps the order, and a condition of a sum leads to no index: while its statistics say that
    # the queue is empty, SQLite would rather go through the queue for each dependency than look up one job.
    ((upstreams, jobs),) = tx.rows(
        "SELECT count(*) FILTER (WHERE j.status = 'QUEUED'), "
        "count(DISTINCT d.job_id) FILTER (WHERE j.status = 'QUEUED') "
        "FROM dependencies d INDEXED BY dependencies_unmet CROSS JOIN jobs j WHERE d.met_at IS NULL AND j.id = d.job_id"
    )
    counts[UPSTREAM] = int(jobs)
    return counts, chains + int(upstreams)
