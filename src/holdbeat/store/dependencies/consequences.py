"""Consequences: what the end of jobs means for their groups, schedules, children and dependents.

Guards DEP-02: an end goes down the whole graph in the transaction that writes it. A job that ends because of another is
an end itself, for its own group, schedule and dependents.

Guards DEP-01: the transaction of an end marks its edges first, then locks the dependent jobs, and only then checks
whether another edge is left. Of two ends at the same instant the second waits for the first, and sees its mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdbeat.domain.dependencies import OnUpstream, broken_by
from holdbeat.domain.job import Job
from holdbeat.store.durable.children import wake_parents
from holdbeat.store.queue.cancelled import mark_cancelled
from holdbeat.store.queue.groups import open_gates, step_groups
from holdbeat.store.queue.unstarted import EndedJob, cancel_unstarted, skip_unstarted
from holdbeat.store.reads.chains import roots_of
from holdbeat.store.reads.children import descendants_of
from holdbeat.store.reads.jobs import load_jobs, locked_unfinished
from holdbeat.store.schedules.after_run import after_chains
from holdbeat.store.transaction import Row, Transaction
from holdbeat.store.webhooks.outbox import Outbox

PARENT_CANCELLED = "parent cancelled"


def cancel_descendants(tx: Transaction, chain_ids: Sequence[str], outbox: Outbox) -> list[Job]:
    """Cancels what the handlers of these chains made and is unfinished, with all below it; returns what has ended."""
    jobs: dict[str, Job] = {}
    # A child that was about to make one of its own had to be waited for: what it made is seen by the next look.
    while new := [job_id for job_id in descendants_of(tx, chain_ids) if job_id not in jobs]:
        jobs |= {job.id: job for job in locked_unfinished(tx, new)}
    return mark_cancelled(tx, list(jobs.values()), PARENT_CANCELLED, outbox)


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


def follow(
    tx: Transaction,
    awaited: Mapping[str, str],
    group_ids: Iterable[str | None],
    scheduled: Sequence[Job],
    outbox: Outbox,
    *,
    ended_groups: Mapping[str, str] | None = None,
    stopped: Iterable[str] = (),
) -> None:
    """Lets groups, schedules, dependents and children do what follows from ends, until nothing more does.

    `awaited` are the last jobs of chains that have ended and that others depend on, each with how it ended;
    `ended_groups` are groups that had ended before; `stopped` are chains that were cancelled or skipped, whose children
    are cancelled with them.
    """
    awaited = dict(awaited)
    finished = dict(ended_groups or {})
    groups = {group for group in group_ids if group}
    parents = set(stopped)
    while True:
        if parents:
            children = cancel_descendants(tx, sorted(parents), outbox)
            awaited |= {job.id: job.status for job in children if job.is_awaited}
            groups |= {job.group_id for job in children if job.group_id}
            parents = set()
        if groups:
            steps = step_groups(tx, sorted(groups), outbox)
            awaited |= {job.id: job.status for job in steps.jobs if job.is_awaited}
            finished |= steps.awaited_groups
            parents |= _parents(steps.jobs)
            groups = set()
        if scheduled:
            after_chains(tx, scheduled)
        if not awaited and not finished and not parents:
            return
        ended = settle_dependents(tx, awaited, finished, outbox) if awaited or finished else []
        finished = {}
        awaited = {job.id: job.status for job in ended if job.is_awaited}
        groups = {job.group_id for job in ended if job.group_id}
        scheduled = _scheduled(tx, ended)
        parents |= _parents(ended)


def follow_unstarted(tx: Transaction, ended: Sequence[EndedJob], outbox: Outbox) -> None:
    """`follow` for jobs that ended before they started."""
    awaited = {job.id: job.status for job in ended if job.is_awaited}
    groups = {job.group_id for job in ended}
    follow(tx, awaited, groups, _scheduled(tx, ended), outbox, stopped=_parents(ended))


def _parents(ended: Sequence[EndedJob]) -> set[str]:
    """The chains that may have children: those with a job that has run."""
    return {job.root_id for job in ended if job.root_id is not None}


def _scheduled(tx: Transaction, ended: Sequence[EndedJob]) -> list[Job]:
    return load_jobs(tx, [job.id for job in ended if job.schedule_id])
