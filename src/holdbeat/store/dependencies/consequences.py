"""Consequences: what the end of jobs means to their groups, schedules and children, and to those who depend on them.

Guards DEP-02: an end goes down the whole graph in the transaction that writes it. A job that ends because of another is
an end itself, for its own group, schedule and dependents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdbeat.domain.job import Job
from holdbeat.store.dependencies.children import cancel_descendants
from holdbeat.store.dependencies.dependents import settle_dependents
from holdbeat.store.queue.groups import step_groups
from holdbeat.store.queue.unstarted import EndedJob
from holdbeat.store.reads.jobs import load_jobs
from holdbeat.store.schedules.after_run import after_chains
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.outbox import Outbox


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
    """The chains among them that may have children: those of which a job has run."""
    return {job.root_id for job in ended if job.root_id is not None}


def _scheduled(tx: Transaction, ended: Sequence[EndedJob]) -> list[Job]:
    return load_jobs(tx, [job.id for job in ended if job.schedule_id])
