"""The History: everything that a check may know, as rows of plain values.

Wall times are seconds since 1970, monotonic times are seconds of one clock that all processes share. Rows are mappings;
a check reads the keys that are named here and ignores others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Row = Mapping[str, Any]

ENDED = frozenset({"COMPLETED", "FAILED", "SKIPPED", "CANCELLED"})
"""How a chain can end. A job that is CONTINUED has ended, too; its chain goes on in another job."""


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One promise that was broken, in a sentence."""

    kind: str
    subject: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.sentence}"


@dataclass
class History:
    """The history of a campaign: acknowledgements and sightings outside of the store, then its tables."""

    # --- seen outside of the store -------------------------------------------------------------------------
    acknowledged: Sequence[Row] = ()
    """Submissions that were answered: job, and key where it had one."""
    cancelled: Sequence[Row] = ()
    """Cancels that were answered: job (the one that was cancelled), monotonic, and was_queued."""
    starts: Sequence[Row] = ()
    """Written by handlers: run, job (None for a direct request), fence, resource, process, wall, monotonic, token."""
    ticks: Sequence[Row] = ()
    """Written by handlers while they run: run, monotonic."""
    ends: Sequence[Row] = ()
    """Written by handlers as their last act: run, monotonic, how (returned, raised or stopped)."""
    deaths: Sequence[Row] = ()
    """Processes that were killed: process, monotonic (when the signal was sent)."""
    frozen: Sequence[Row] = ()
    """Processes that were stopped for a while and executed nothing: process, since, until (monotonic)."""
    requests: Sequence[Row] = ()
    """Direct requests: token, and outcome where an answer came."""
    received: Sequence[Row] = ()
    """Webhook messages that a receiver accepted: delivery."""
    steps_seen: Sequence[Row] = ()
    """Written by handlers: run, chain (its first job), step, what, monotonic; `called` when the function of the step
    begins, `passed` with its value when the handler goes on."""
    sleeps_seen: Sequence[Row] = ()
    """Written by handlers before and after their one sleep: run, chain, what (begun or over), seconds, monotonic."""
    waits_seen: Sequence[Row] = ()
    """Written by handlers: run, chain, number, what (begun, got or timed out), payload, timeout_s, monotonic."""
    children_seen: Sequence[Row] = ()
    """Written by handlers that got the result of their one child: run, chain."""
    signals_sent: Sequence[Row] = ()
    """Signals to chains: chain, payload, monotonic, is_answered; without an answer it may have been stored or not."""
    dependencies: Sequence[Row] = ()
    """Jobs that were made to wait for others: job, after (their first jobs), on_upstream."""

    # --- what should be -----------------------------------------------------------------------------------
    limits: Mapping[str, int] = field(default_factory=dict)
    """How many runs of a resource may be under way at one moment."""
    timetables: Sequence[Row] = ()
    """Schedules that nobody edited: schedule, first, every, until (wall). Each due time in between has a verdict."""
    wall_is_steady: bool = True
    """Whether the wall clock never jumped: only then are wall times compared with each other."""
    thaw_s: float = 0.0
    """How long a handler may go on after its stopped process was continued: until it has heard that its lease is gone.
    No program can do better from outside; 0 forgives nothing."""
    may_be_gone: frozenset[str] = frozenset()
    """Jobs that retention may have taken away."""
    subscribed: str | None = None
    """The id of a webhook that was told of every event from the beginning."""

    # --- the tables in the end ------------------------------------------------------------------------------
    jobs: Sequence[Row] = ()
    """id, status, resource, retry_of, retry_kind, retried_by, permanently_failed, retry_policy, attempt, not_before,
    group_id, sequence, schedule_id, scheduled_for, idempotency_key, parent_id, unique_key, unique_while, expires_at."""
    runs: Sequence[Row] = ()
    """id, job_id, fence, status, error_kind, started_at, finished_at."""
    groups: Sequence[Row] = ()
    """id, mode, on_failure, status."""
    occurrences: Sequence[Row] = ()
    """schedule_id, due_at, status, job_id, count."""
    reservations: Sequence[Row] = ()
    """id, status, outcome."""
    deliveries: Sequence[Row] = ()
    """id, webhook_id, job_id, group_id, event, status."""
    leases: Sequence[Row] = ()
    """id."""
    steps: Sequence[Row] = ()
    """root_id, name, value."""

    # --- lookups --------------------------------------------------------------------------------------------

    @cached_property
    def job(self) -> dict[str, Row]:
        return {row["id"]: row for row in self.jobs}

    @cached_property
    def run(self) -> dict[str, Row]:
        return {row["id"]: row for row in self.runs}

    @cached_property
    def run_of(self) -> dict[str, Row]:
        """The run of a job."""
        return {row["job_id"]: row for row in self.runs}

    @cached_property
    def end_of(self) -> dict[str, Row]:
        """The handler's own last act, by run."""
        return {row["run"]: row for row in self.ends}

    @cached_property
    def started(self) -> frozenset[str]:
        """Runs that a handler saw begin."""
        return frozenset(row["run"] for row in self.starts)

    @cached_property
    def wall_of_start(self) -> dict[str, float]:
        """When a handler saw its job begin, by job."""
        return {row["job"]: row["wall"] for row in self.starts if row["job"] is not None}
