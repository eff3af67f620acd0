"""Linking: the dependencies of new jobs, stored in the transaction that stores the jobs.

Guards DEP-01 against an upstream that ends meanwhile: the last job of its chain is locked before it is looked at, so
either it has ended, or the transaction that ends it sees the dependency.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdbeat.domain.dependencies import Upstream
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import NewJob
from holdbeat.store.dependencies.consequences import follow
from holdbeat.store.reads.chains import roots_of
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.outbox import Outbox


@dataclass(frozen=True, slots=True)
class NewEdges:
    """A new job, and what it depends on, with every `ref` replaced by the id of its job."""

    job_id: str
    upstreams: Sequence[Upstream]


@dataclass(frozen=True, slots=True)
class Known:
    """The jobs and groups that submissions name and that are there; they stay until the transaction has ended."""

    jobs: frozenset[str]
    groups: frozenset[str]

    def check(self, batch: Sequence[NewJob]) -> None:
        """Refuses a batch that names what does not exist."""
        for index, job in enumerate(batch):
            for number, upstream in enumerate(job.after):
                if upstream.job_id is not None and upstream.job_id not in self.jobs:
                    noun, missing, field = "job", upstream.job_id, "job_id"
                elif upstream.group_id is not None and upstream.group_id not in self.groups:
                    noun, missing, field = "job group", upstream.group_id, "group_id"
                else:
                    continue
                place = f"jobs[{index}]." if len(batch) > 1 else ""
                raise Invalid(
                    f"There is no {noun} {missing}. A job can depend only on what exists, or on earlier jobs of its "
                    "batch by their ref.",
                    code="unknown_upstream",
                    field=f"{place}after[{number}].{field}",
                )


def known_upstreams(tx: Transaction, requests: Iterable[NewJob]) -> Known:
    """The jobs and groups that exist, of all that these jobs name."""
    named = [upstream for request in requests for upstream in request.after]
    groups = sorted({upstream.group_id for upstream in named if upstream.group_id is not None})
    jobs = sorted({upstream.job_id for upstream in named if upstream.job_id is not None})
    return Known(
        # Groups before jobs, as everywhere.
        groups=frozenset(_locked(tx, "job_groups", groups)),
        jobs=frozenset(_locked(tx, "jobs", jobs)),
    )


def _locked(tx: Transaction, table: str, ids: Sequence[str]) -> set[str]:
    if not ids:
        return set()
    return set(tx.column(f"SELECT id FROM {table} WHERE id IN :ids ORDER BY id FOR UPDATE", ids=ids))


def link(tx: Transaction, links: Sequence[NewEdges]) -> None:
    """Stores the edges of new jobs, and lets what has ended already have its consequences at once."""
    jobs = {upstream.job_id for edges in links for upstream in edges.upstreams if upstream.job_id is not None}
    groups = {upstream.group_id for edges in links for upstream in edges.upstreams if upstream.group_id is not None}
    heads = roots_of(tx, sorted(jobs)) if jobs else {}
    rows = []
    for edges in links:
        for number, upstream in enumerate(edges.upstreams):
            upstream_id = heads[upstream.job_id] if upstream.job_id is not None else upstream.group_id
            rows.append((edges.job_id, number, upstream_id, upstream.group_id is not None, upstream.name))
    tx.insert("dependencies", ("job_id", "number", "upstream_id", "is_group", "name"), rows)
    ended_jobs, open_jobs = _tips(tx, sorted(jobs))
    if open_jobs:
        tx.execute("UPDATE jobs SET is_awaited = :yes WHERE id IN :ids", ids=open_jobs, yes=True)
    ended_groups, open_groups = _groups(tx, sorted(groups))
    if open_groups:
        tx.execute("UPDATE job_groups SET is_awaited = :yes WHERE id IN :ids", ids=open_groups, yes=True)
    if ended_jobs or ended_groups:
        outbox = Outbox(tx)
        follow(tx, ended_jobs, (), (), outbox, ended_groups=ended_groups)
        outbox.write()


def _tips(tx: Transaction, job_ids: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The last jobs of the chains of these jobs, locked: those that have ended, with their status, and the others."""
    ended: dict[str, str] = {}
    unfinished: list[str] = []
    pending = list(job_ids)
    while pending:
        rows = tx.rows(
            "SELECT id, status, retried_by, permanently_failed FROM jobs WHERE id IN :ids ORDER BY id FOR UPDATE",
            ids=pending,
        )
        pending = sorted({row[2] for row in rows if row[2] is not None})
        for job_id, status, retried_by, failed_for_good in rows:
            if retried_by is not None:
                continue
            if status in ("COMPLETED", "SKIPPED", "CANCELLED") or (status == "FAILED" and failed_for_good):
                ended[job_id] = status
            else:
                unfinished.append(job_id)
    if ended:
        # One that was cancelled while it ran has not ended before its handler has.
        leased = set(tx.column("SELECT job_id FROM leases WHERE job_id IN :ids", ids=sorted(ended)))
        unfinished += sorted(leased)
        ended = {job_id: status for job_id, status in ended.items() if job_id not in leased}
    return ended, unfinished


def _groups(tx: Transaction, group_ids: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    if not group_ids:
        return {}, []
    rows = tx.rows("SELECT id, status, finished_at FROM job_groups WHERE id IN :ids", ids=group_ids)
    ended = {row[0]: row[1] for row in rows if row[2] is not None}
    return ended, [row[0] for row in rows if row[2] is None]
