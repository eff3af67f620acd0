"""Consequences: what the end of jobs means to their groups, to their schedules, and to the jobs that depend on them.

Guards DEP-02: an end goes down the whole graph in the transaction that writes it. A job that ends because of another is
an end itself, for its own group, schedule and dependents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdbeat.domain.job import Job
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
) -> None:
    """Lets groups, schedules and dependents do what follows from ends, until nothing more does.

    `awaited` are the last jobs of chains that have ended and that others depend on, each with how it ended;
    `ended_groups` are groups that had ended before.
    """
    awaited = dict(awaited)
    finished = dict(ended_groups or {})
    groups = {group for group in group_ids if group}
    while True:
        if groups:
            steps = step_groups(tx, sorted(groups), outbox)
            awaited |= {job.id: job.status for job in steps.jobs if job.is_awaited}
            finished |= steps.awaited_groups
        if scheduled:
            after_chains(tx, scheduled)
        if not awaited and not finished:
            return
        ended = settle_dependents(tx, awaited, finished, outbox)
        finished = {}
        awaited = {job.id: job.status for job in ended if job.is_awaited}
        groups = {job.group_id for job in ended if job.group_id}
        scheduled = _scheduled(tx, ended)


def follow_unstarted(tx: Transaction, ended: Sequence[EndedJob], outbox: Outbox) -> None:
    """`follow` for jobs that ended before they started."""
    awaited = {job.id: job.status for job in ended if job.is_awaited}
    follow(tx, awaited, {job.group_id for job in ended}, _scheduled(tx, ended), outbox)


def _scheduled(tx: Transaction, ended: Sequence[EndedJob]) -> list[Job]:
    return load_jobs(tx, [job.id for job in ended if job.schedule_id])
