"""JobGroup and GroupFailurePolicy: several Jobs that belong together.

Guards INV-006: a group ends only when every member's chain has ended and none still holds a lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdbeat.domain.bounds import check_choice
from holdbeat.domain.errors import Invalid
from holdbeat.domain.job import JobStatus


class GroupMode(StrEnum):
    SEQUENTIAL = "sequential"
    PARALLEL = "parallel"


class OnFailure(StrEnum):
    STOP = "stop"
    CONTINUE = "continue"
    SKIP = "skip"


class ThenWhen(StrEnum):
    """When the job that a group was made with runs after it."""

    COMPLETED = "completed"
    """Only if the group has completed; otherwise it is cancelled."""
    ALWAYS = "always"


def check_then_when(value: Any, *, has_then: bool) -> ThenWhen:
    """When the job after a group is to run; refused if it says so of no job."""
    when = check_choice(ThenWhen, value, "then_when")
    if when is ThenWhen.ALWAYS and not has_then:
        raise Invalid(
            "then_when says when the job in then runs, and there is none. Add then, or leave out then_when.",
            code="no_then",
            field="then_when",
        )
    return when


class GroupStatus(StrEnum):
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    PARTIAL = "PARTIAL"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        return self not in (GroupStatus.QUEUED, GroupStatus.RUNNING)


PREDECESSOR_FAILED = "predecessor failed"
PREDECESSOR_CANCELLED = "predecessor cancelled"


@dataclass(slots=True)
class JobGroup:
    id: str
    name: str | None
    mode: GroupMode
    on_failure: OnFailure
    status: GroupStatus
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    is_awaited: bool = False
    """Whether a job depends on its end."""
    then_job_id: str | None = None
    """The job that was made with it, to run when it has ended."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member's chain, seen at its tip."""

    sequence: int
    tip_id: str
    status: JobStatus
    is_gated: bool = False
    holds_lease: bool = False
    """Some job of the chain still executes, even if it was cancelled."""
    failed_for_good: bool = False
    """FAILED with the verdict stored; a failure that awaits its retry is not one."""
    skipped_by_policy: bool = False
    """SKIPPED because of another member, not by its own handler."""
    ever_ran: bool = False

    @property
    def has_ended(self) -> bool:
        if self.holds_lease or not self.status.is_terminal:
            return False
        return self.status is not JobStatus.FAILED or self.failed_for_good


@dataclass(frozen=True, slots=True)
class GroupStep:
    """The next step of a group: the gates that open, the members to cancel or skip, and the group's new status."""

    status: GroupStatus
    open_gates: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GroupFailurePolicy:
    """Decides the next step of a group from its members alone."""

    mode: GroupMode
    on_failure: OnFailure

    def step(self, members: Sequence[Member]) -> GroupStep:
        ordered = sorted(members, key=lambda member: member.sequence)
        if self.mode is GroupMode.SEQUENTIAL:
            opened, ended, reason = self._sequential(ordered)
        else:
            opened, ended, reason = self._parallel(ordered)
        cancelled = ended if self.on_failure is OnFailure.STOP else ()
        skipped = ended if self.on_failure is OnFailure.SKIP else ()
        return GroupStep(
            self._status(ordered, set(cancelled), set(skipped)),
            opened,
            tuple(m.tip_id for m in cancelled),
            tuple(m.tip_id for m in skipped),
            reason,
        )

    def _sequential(self, ordered: Sequence[Member]) -> tuple[tuple[str, ...], tuple[Member, ...], str]:
        for index, member in enumerate(ordered):
            if not member.has_ended:
                gate = (member.tip_id,) if member.is_gated else ()
                return gate, (), ""
            # A member that the policy cancelled comes after the member that caused it, which is met first.
            went_wrong = member.status in (JobStatus.FAILED, JobStatus.CANCELLED)
            if went_wrong and self.on_failure is not OnFailure.CONTINUE:
                rest = tuple(m for m in ordered[index + 1 :] if m.status is JobStatus.QUEUED)
                reason = PREDECESSOR_FAILED if member.status is JobStatus.FAILED else PREDECESSOR_CANCELLED
                return (), rest, reason
        return (), (), ""

    def _parallel(self, ordered: Sequence[Member]) -> tuple[tuple[str, ...], tuple[Member, ...], str]:
        failed = any(m.has_ended and m.status is JobStatus.FAILED for m in ordered)
        if failed and self.on_failure is not OnFailure.CONTINUE:
            return (), tuple(m for m in ordered if m.status is JobStatus.QUEUED), PREDECESSOR_FAILED
        return (), (), ""

    @staticmethod
    def _status(ordered: Sequence[Member], cancelled: set[Member], skipped: set[Member]) -> GroupStatus:
        going_away = cancelled | skipped
        if not all(member.has_ended or (member in going_away and not member.holds_lease) for member in ordered):
            started = any(m.ever_ran or m.status is not JobStatus.QUEUED for m in ordered)
            return GroupStatus.RUNNING if started else GroupStatus.QUEUED
        tips = [member for member in ordered if member not in going_away]
        if len(tips) == len(ordered) and all(
            m.status is JobStatus.COMPLETED or (m.status is JobStatus.SKIPPED and not m.skipped_by_policy) for m in tips
        ):
            return GroupStatus.COMPLETED
        by_request = all(
            m.status is JobStatus.CANCELLED or (m.status is JobStatus.SKIPPED and m.skipped_by_policy) for m in tips
        )
        return GroupStatus.CANCELLED if by_request else GroupStatus.PARTIAL
