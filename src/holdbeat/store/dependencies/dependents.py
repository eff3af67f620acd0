"""Dependents: the jobs that wait for an end, opened or ended in the transaction that writes it.

Guards DEP-01: whoever writes an end marks its edges first, then locks the jobs behind them, and only then looks whether
another edge is left. Of two ends at the same instant the second waits for the first, and sees its mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdbeat.domain.dependencies import OnUpstream, broken_by
from holdbeat.store.durable.children import wake_parents
from holdbeat.store.queue.groups import open_gates
from holdbeat.store.queue.unstarted import EndedJob, cancel_unstarted, skip_unstarted
from holdbeat.store.reads.chains import roots_of
from holdbeat.store.transaction import Row, Transaction
from holdbeat.store.webhooks.outbox import Outbox


def settle_dependents(
    tx: Transaction, jobs: Mapping[str, str], groups: Mapping[str, str], outbox: Outbox
) -> list[EndedJob]:
    """Marks the edges to jobs and groups that have ended, and opens the jobs that wait for nothing else: dependents,
    and parents whose handlers wait for a child.

    `jobs` are the last jobs of their chains, and each comes with how it ended. The answer is the jobs that end because
    of it: cancelled or skipped, as each of them says.
    """
    ends = dict(groups)
    if jobs:
        heads = roots_of(tx, list(jobs))
        ends |= {heads[job_id]: status for job_id, status in jobs.items()}
        wake_parents(tx, sorted(heads.values()))
    met = tx.rows(
        "UPDATE dependencies SET met_at = :now, outcome = e.outcome FROM rows(:ends; id text, outcome text) AS e "
        "WHERE dependencies.upstream_id = e.id AND met_at IS NULL "
        "RETURNING dependencies.job_id, dependencies.upstream_id, dependencies.outcome",
        now=tx.now,
        ends=sorted(ends.items()),
    )
    return _decide(tx, met, outbox) if met else []


def _decide(tx: Transaction, met: Sequence[Row], outbox: Outbox) -> list[EndedJob]:
    roots = sorted({row[0] for row in met})
    if tx.dialect == "postgres":
        tx.rows("SELECT id FROM jobs WHERE id IN :ids ORDER BY id FOR UPDATE", ids=roots)
    broken: dict[str, tuple[str, str]] = {}
    for root_id, upstream_id, outcome in met:
        reason = broken_by(outcome)
        if reason is not None:
            broken.setdefault(root_id, (reason, upstream_id))
    opened: list[str] = []
    ends: dict[tuple[str, str, str], list[str]] = {}
    for job_id, root_id, on_upstream, has_unmet in _blocked(tx, roots):
        if root_id in broken and on_upstream != OnUpstream.RUN:
            ends.setdefault((on_upstream, *broken[root_id]), []).append(job_id)
        elif not has_unmet:
            opened.append(job_id)
    if opened:
        open_gates(tx, opened)
    ended: list[EndedJob] = []
    for (on_upstream, reason, upstream_id), ids in ends.items():
        end = skip_unstarted if on_upstream == OnUpstream.SKIP else cancel_unstarted
        ended += end(tx, ids, reason, outbox, upstream=upstream_id)
    return ended


def _blocked(tx: Transaction, roots: Sequence[str]) -> list[Row]:
    """The jobs of these chains that wait for their dependencies: id, root, what they do, and whether one is left."""
    columns = (
        "on_upstream, EXISTS (SELECT 1 FROM dependencies d WHERE d.job_id = {root} AND d.met_at IS NULL) FROM jobs "
        "WHERE status = 'QUEUED' AND hold = 5 AND"
    )
    return tx.rows(
        f"SELECT id, id, {columns.format(root='jobs.id')} id IN :ids "
        f"UNION ALL SELECT id, root_id, {columns.format(root='jobs.root_id')} root_id IS NOT NULL "
        "AND status IN ('QUEUED', 'RUNNING') AND root_id IN :ids ORDER BY 1",
        ids=roots,
    )
