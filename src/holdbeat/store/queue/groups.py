"""JobGroups in the store: made with their members, and moved on when a member's chain ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdbeat.domain import events
from holdbeat.domain.group import (
    GroupFailurePolicy,
    GroupMode,
    GroupStatus,
    JobGroup,
    Member,
    OnFailure,
)
from holdbeat.domain.job import Hold, Job, JobStatus, NewJob
from holdbeat.store.queue.enqueue import insert_jobs
from holdbeat.store.queue.unstarted import EndedJob, cancel_unstarted, skip_unstarted
from holdbeat.store.reads.jobs import load_jobs
from holdbeat.store.reads.rows import GROUPS, LISTED_RESULT_BYTES
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.outbox import Outbox


def create_group(
    tx: Transaction, name: str | None, mode: GroupMode, on_failure: OnFailure, members: Sequence[NewJob]
) -> tuple[JobGroup, list[Job]]:
    """Stores a group with all its members, or nothing. In a sequential group all but the first wait at a gate."""
    group = JobGroup(tx.new_id(), name, mode, on_failure, GroupStatus.QUEUED, tx.now)
    tx.insert(
        "job_groups",
        ("id", "name", "mode", "on_failure", "status", "created_at"),
        [(group.id, name, mode, on_failure, group.status, tx.now)],
    )
    for sequence, member in enumerate(members):
        member.group_id = group.id
        member.sequence = sequence
        if mode is GroupMode.SEQUENTIAL and sequence > 0:
            member.hold = Hold.GATED
    return group, insert_jobs(tx, members)


def load_group(tx: Transaction, group_id: str) -> tuple[JobGroup, list[Job]]:
    """A group with all jobs that ever were its members, retries included, by sequence."""
    group = GROUPS.get(tx, group_id)
    ids = tx.column("SELECT id FROM jobs WHERE group_id = :id ORDER BY sequence, id", id=group_id)
    return group, load_jobs(tx, ids, result_bytes=LISTED_RESULT_BYTES)


@dataclass(slots=True)
class GroupEnds:
    """The jobs and groups that have ended by the steps of groups."""

    jobs: list[EndedJob] = field(default_factory=list)
    awaited_groups: dict[str, str] = field(default_factory=dict)
    """The groups that jobs depend on, each with its status."""


def step_groups(tx: Transaction, group_ids: Sequence[str], outbox: Outbox) -> GroupEnds:
    """Lets each group do what its policy says now, and ends it if that was all (INV-006)."""
    ends = GroupEnds()
    for group in GROUPS.all(tx, "WHERE id IN :ids ORDER BY id FOR UPDATE", ids=group_ids):
        if group.status.is_terminal:
            continue
        members = _members(tx, group.id)
        step = GroupFailurePolicy(group.mode, group.on_failure).step(members)
        if step.open_gates:
            open_gates(tx, step.open_gates)
        if step.cancel:
            ends.jobs += cancel_unstarted(tx, step.cancel, step.reason, outbox)
        if step.skip:
            ends.jobs += skip_unstarted(tx, step.skip, step.reason, outbox)
        _move_on(tx, group, step.status, outbox)
        if step.status.is_terminal and group.is_awaited:
            ends.awaited_groups[group.id] = step.status
    return ends


def open_gates(tx: Transaction, job_ids: Sequence[str]) -> None:
    """Lets jobs that waited for others into the queue; one with a delay of its own still waits for that."""
    tx.execute(
        "UPDATE jobs SET hold = CASE WHEN not_before > :now THEN 1 ELSE 0 END, ages_at = :now "
        "WHERE id IN :ids AND hold IN (2, 3, 5)",
        ids=job_ids,
        now=tx.now,
    )
    tx.wake(Topic.READY, Topic.DELAYED)


def _members(tx: Transaction, group_id: str) -> list[Member]:
    chains: dict[int, list[tuple[object, ...]]] = {}
    if tx.dialect == "postgres":
        # A claim under way may be taking one of these: without the lock it would be seen as still QUEUED.
        tx.execute("SELECT id FROM jobs WHERE group_id = :id AND status = 'QUEUED' ORDER BY id FOR UPDATE", id=group_id)
    for row in tx.rows(
        "SELECT j.sequence, j.id, j.status, j.hold, j.permanently_failed, j.cancel_reason, j.retried_by, l.id, r.id "
        "FROM jobs j LEFT JOIN leases l ON l.job_id = j.id LEFT JOIN job_runs r ON r.job_id = j.id "
        "WHERE j.group_id = :id ORDER BY j.sequence, j.id",
        id=group_id,
    ):
        chains.setdefault(int(row[0] or 0), []).append(row)
    members = []
    for sequence, chain in chains.items():
        tip = next((row for row in reversed(chain) if row[6] is None), chain[-1])
        status = JobStatus(str(tip[2]))
        members.append(
            Member(
                sequence=sequence,
                tip_id=str(tip[1]),
                status=status,
                is_gated=status is JobStatus.QUEUED and tip[3] == Hold.GATED,
                holds_lease=any(row[7] is not None for row in chain),
                failed_for_good=bool(tip[4]),
                # A job that its own handler skipped was never told to stop.
                skipped_by_policy=status is JobStatus.SKIPPED and tip[5] is not None,
                ever_ran=any(row[8] is not None for row in chain),
            )
        )
    return members


def _move_on(tx: Transaction, group: JobGroup, status: GroupStatus, outbox: Outbox) -> None:
    if status is group.status:
        return
    finished_at = tx.now if status.is_terminal else None
    tx.execute(
        "UPDATE job_groups SET status = :status, finished_at = :finished_at, "
        "started_at = CASE WHEN :started THEN COALESCE(started_at, :now) ELSE started_at END WHERE id = :id",
        id=group.id,
        status=status,
        finished_at=finished_at,
        started=status is GroupStatus.RUNNING,
        now=tx.now,
    )
    if status.is_terminal:
        tx.record(events.GROUP_FINISHED, group_id=group.id, status=status)
        outbox.tell_group(group.id)


def group_name(tx: Transaction, group_id: str) -> str | None:
    """The name of a group; None if it has none, or is gone."""
    row = tx.one("SELECT name FROM job_groups WHERE id = :id", id=group_id)
    return None if row is None else row[0]


def member_counts(tx: Transaction, group_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """For each group the number of its jobs by status; of a chain the last attempt counts."""
    counts: dict[str, dict[str, int]] = {group_id: {} for group_id in group_ids}
    for group_id, status, amount in tx.rows(
        "SELECT group_id, status, count(*) FROM jobs WHERE group_id IN :ids AND group_id IS NOT NULL "
        "AND retried_by IS NULL GROUP BY group_id, status",
        ids=list(group_ids),
    ):
        counts[group_id][status] = int(amount)
    return counts
