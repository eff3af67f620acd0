"""Families of jobs: everything that hangs together by retries or by a group.

Guards that retention judges the whole family. The jobs are locked as they are found, so that no manual retry can
join a family while it is being judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holdbeat.store.transaction import Row, Transaction


@dataclass(slots=True)
class Family:
    """Jobs and groups that belong together, and what keeps them."""

    jobs: set[str] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    ended_at: datetime | None = None
    """The last end among them."""
    is_needed: bool = False
    """Something of it is unfinished, undecided, executed, or has a message on its way."""

    def may_go(self, before: datetime) -> bool:
        return not self.is_needed and self.ended_at is not None and self.ended_at < before


class _DisjointSets:
    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def head(self, member: str) -> str:
        parent = self._parent.setdefault(member, member)
        while parent != self._parent[parent]:
            self._parent[parent] = self._parent[self._parent[parent]]
            parent = self._parent[parent]
        return parent

    def unite(self, left: str, right: str) -> None:
        self._parent[self.head(right)] = self.head(left)


def families(tx: Transaction, job_ids: Sequence[str]) -> list[Family]:
    """The families of these jobs, each whole and once."""
    if not job_ids:
        return []
    sets = _DisjointSets()
    jobs: dict[str, tuple[bool, datetime | None]] = {}
    groups: set[str] = set()
    frontier = set(job_ids)
    while frontier:
        rows = tx.rows(
            "SELECT id, status, finished_at, retry_of, retried_by, permanently_failed, group_id FROM jobs "
            "WHERE id IN :ids ORDER BY id FOR UPDATE",
            ids=sorted(frontier),
        )
        relatives: set[str] = set()
        new_groups: set[str] = set()
        for job_id, status, finished_at, retry_of, retried_by, verdict, group_id in rows:
            undecided = status == "FAILED" and retried_by is None and not verdict
            jobs[job_id] = (status in ("QUEUED", "RUNNING") or undecided, tx.time(finished_at))
            for relative in (retry_of, retried_by):
                if relative:
                    sets.unite(relative, job_id)
                    relatives.add(relative)
            if group_id:
                sets.unite(f"group {group_id}", job_id)
                new_groups.add(group_id)
        new_groups -= groups
        groups |= new_groups
        for retry_of, job_id in _retries(tx, [row[0] for row in rows]):
            sets.unite(retry_of, job_id)
            relatives.add(job_id)
        if new_groups:
            relatives |= set(tx.column("SELECT id FROM jobs WHERE group_id IN :ids", ids=sorted(new_groups)))
        frontier = relatives - jobs.keys() - frontier
    return _gather(tx, sets, jobs, groups)


def _retries(tx: Transaction, ids: Sequence[str]) -> list[Row]:
    if not ids:
        return []
    return tx.rows(
        "SELECT retry_of, id FROM jobs WHERE retry_kind = 'auto' AND retry_of IN :ids "
        "UNION ALL SELECT retry_of, id FROM jobs WHERE retry_kind = 'manual' AND retry_of IN :ids",
        ids=ids,
    )


def _gather(
    tx: Transaction, sets: _DisjointSets, jobs: dict[str, tuple[bool, datetime | None]], groups: Iterable[str]
) -> list[Family]:
    families_by_head: dict[str, Family] = {}
    needed = _needed_jobs(tx, list(jobs))
    for job_id, (is_unfinished, finished_at) in jobs.items():
        family = families_by_head.setdefault(sets.head(job_id), Family())
        family.jobs.add(job_id)
        family.is_needed = family.is_needed or is_unfinished or finished_at is None or job_id in needed
        _end(family, finished_at)
    needed = _needed_groups(tx, list(groups))
    for group_id, finished_at in _group_ends(tx, list(groups)):
        family = families_by_head[sets.head(f"group {group_id}")]
        family.groups.add(group_id)
        family.is_needed = family.is_needed or finished_at is None or group_id in needed
        _end(family, finished_at)
    return list(families_by_head.values())


def _end(family: Family, finished_at: datetime | None) -> None:
    if finished_at is not None and (family.ended_at is None or finished_at > family.ended_at):
        family.ended_at = finished_at


_AWAITED = (
    "SELECT d.upstream_id FROM dependencies d WHERE d.upstream_id IN :ids AND (EXISTS (SELECT 1 FROM jobs j "
    "WHERE j.id = d.job_id AND j.status IN ('QUEUED', 'RUNNING')) OR EXISTS (SELECT 1 FROM jobs j "
    "WHERE j.root_id = d.job_id AND j.root_id IS NOT NULL AND j.status IN ('QUEUED', 'RUNNING')))"
)
"""What unfinished jobs depend on: they may still read its result."""


_PARENT_UNFINISHED = (
    "SELECT c.id FROM jobs c WHERE c.id IN :ids AND c.parent_id IS NOT NULL AND (EXISTS (SELECT 1 FROM jobs j "
    "WHERE j.id = c.parent_id AND j.status IN ('QUEUED', 'RUNNING')) OR EXISTS (SELECT 1 FROM jobs j "
    "WHERE j.root_id = c.parent_id AND j.root_id IS NOT NULL AND j.status IN ('QUEUED', 'RUNNING')))"
)
"""Children whose parent may still read their result."""


def _needed_jobs(tx: Transaction, ids: Sequence[str]) -> set[str]:
    rows = tx.rows(
        "SELECT job_id FROM leases WHERE job_id IN :ids "
        "UNION ALL SELECT job_id FROM deliveries WHERE job_id IN :ids AND status = 'PENDING' "
        "UNION ALL SELECT job_id FROM job_runs WHERE job_id IN :ids AND status IS NULL "
        f"UNION ALL {_AWAITED} UNION ALL {_PARENT_UNFINISHED}",
        ids=ids,
    )
    return {row[0] for row in rows}


def _needed_groups(tx: Transaction, ids: Sequence[str]) -> set[str]:
    if not ids:
        return set()
    rows = tx.rows(
        f"SELECT group_id FROM deliveries WHERE group_id IN :ids AND status = 'PENDING' UNION ALL {_AWAITED}", ids=ids
    )
    return {row[0] for row in rows}


def _group_ends(tx: Transaction, ids: Sequence[str]) -> list[tuple[str, datetime | None]]:
    if not ids:
        return []
    rows = tx.rows("SELECT id, finished_at FROM job_groups WHERE id IN :ids ORDER BY id FOR UPDATE", ids=ids)
    return [(row[0], tx.time(row[1])) for row in rows]
