"""The queue as a few dictionaries: slow, obvious, and right by inspection. The stores are held against it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdbeat.domain.group import GroupFailurePolicy, GroupMode, GroupStatus, Member, OnFailure
from holdbeat.domain.job import Job, JobStatus
from holdbeat.domain.limit import Limit, Limits
from holdbeat.domain.run import COUNTED_KINDS, ErrorKind, Outcome, RunStatus

Place = tuple[str, str]
"""A limit's key, and the partition if it counts by partition."""


@dataclass
class ModelJob:
    id: str
    type: str
    resource: str
    priority: int
    position: int
    created_at: datetime
    max_attempts: int
    not_before: datetime | None
    group_id: str | None
    sequence: int | None
    partition: str = ""
    weight: int = 1
    status: JobStatus = JobStatus.QUEUED
    gated: bool = False
    leased: bool = False
    ran: bool = False
    counted: int = 0
    """Failures that count, in this job's chain so far."""
    retried_by: str | None = None
    permanently_failed: bool = False
    reason: str | None = None
    root_id: str = ""
    waiting: bool = False
    """Whether its handler waits for something that has no time of its own."""
    waits_for: tuple[str, int] | None = None
    """The signal that its handler waits for: its name and number."""
    after: tuple[str, ...] = ()
    """The first jobs of the chains that it depends on."""
    on_upstream: str = "cancel"
    met: dict[str, JobStatus] = field(default_factory=dict)
    blocked: bool = False
    unique_key: str | None = None
    unique_while: str | None = None
    has_begun: bool = False
    """Whether its chain has waited for something."""

    @property
    def holds_key(self) -> bool:
        is_running = self.status is JobStatus.RUNNING and self.unique_while == "unfinished"
        return self.unique_key is not None and (self.status is JobStatus.QUEUED or is_running)

    @staticmethod
    def of(job: Job) -> ModelJob:
        return ModelJob(
            job.id,
            job.type,
            job.resource,
            job.priority,
            job.position,
            job.created_at,
            job.retry_policy.max_attempts,
            job.not_before,
            job.group_id,
            job.sequence,
            job.partition,
            job.weight,
            root_id=job.id,
            unique_key=job.unique_key,
            unique_while=job.unique_while,
        )


@dataclass
class ModelGroup:
    mode: GroupMode
    on_failure: OnFailure
    status: GroupStatus = GroupStatus.QUEUED


@dataclass
class QueueModel:
    limits: Limits
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    groups: dict[str, ModelGroup] = field(default_factory=dict)
    throttles: dict[tuple[str, str, str], datetime] = field(default_factory=dict)
    """Until when nothing starts: by limit, type and partition."""
    signals: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many signals a chain has: by its first job and their name."""

    # --- what may run -------------------------------------------------------------------------------------

    def next_for(self, slots: int, types: tuple[str, ...], now: datetime) -> list[str]:
        used: Counter[Place] = Counter()
        for job in self.jobs.values():
            if job.leased:
                used.update(self._needs(job))
        line = [
            job
            for job in sorted(self.jobs.values(), key=lambda j: (-j.priority, j.position, j.created_at, j.id))
            if job.status is JobStatus.QUEUED
            and not (job.gated or job.waiting or job.blocked)
            and (job.not_before is None or job.not_before <= now)
            and job.type in types
            and not self._is_full_for_all(job, used)
        ]
        chosen: list[str] = []
        waited_for: set[Place] = set()
        before: Counter[tuple[str, str, str]] = Counter()
        free = {job.id: self._free(job, used) for job in line}
        for job in line:
            if len(chosen) == slots:
                break
            needs = self._needs(job)
            slots_of = {place: limit.slots or 0 for place, limit in self._places(job)}
            if any(needs[place] > slots_of[place] for place in needs):
                continue  # it can never start, and is passed by
            if self._is_counted_by_partition(job, now):
                kind = (job.resource, job.type, job.partition)
                before[kind] += 1
                if before[kind] > free[job.id]:
                    continue  # its partition is full: nothing is kept for it, however heavy it is
            if self._is_throttled(job, now) or waited_for & needs.keys():
                continue
            if all(used[place] + needs[place] <= slots_of[place] for place in needs):
                used.update(needs)
                chosen.append(job.id)
            elif job.weight > 1:
                waited_for |= {place for place in needs if used[place] + needs[place] > slots_of[place]}
        return chosen

    def _places(self, job: ModelJob) -> list[tuple[Place, Limit]]:
        """The limits that cover it, each with the part that counts it."""
        return [
            ((pool.key, job.partition if pool.limit.per_partition else ""), pool.limit)
            for pool in self.limits.covering(job.resource, job.type)
        ]

    def _needs(self, job: ModelJob) -> dict[Place, int]:
        return {place: job.weight if limit.resource else 1 for place, limit in self._places(job)}

    def _is_full_for_all(self, job: ModelJob, used: Counter[Place]) -> bool:
        """Whether nothing of its resource and type can start, in whichever partition: such lanes are not looked at."""
        return any(used[place] >= (limit.slots or 0) for place, limit in self._places(job) if not limit.per_partition)

    def _free(self, job: ModelJob, used: Counter[Place]) -> int:
        """How many light jobs of its kind and partition could start."""
        return min((limit.slots or 0) - used[place] for place, limit in self._places(job))

    def _is_counted_by_partition(self, job: ModelJob, now: datetime) -> bool:
        """Whether a limit counts it by partition, or some partition of such jobs is throttled."""
        kinds = {place[:2] for place in self._throttled_places(job)}
        is_throttled = any(place[:2] in kinds and until > now for place, until in self.throttles.items())
        return is_throttled or any(limit.per_partition for _, limit in self._places(job))

    def _is_throttled(self, job: ModelJob, now: datetime) -> bool:
        return any(until > now for until in map(self.throttles.get, self._throttled_places(job)) if until is not None)

    def _throttled_places(self, job: ModelJob) -> list[tuple[str, str, str]]:
        return [
            (place[0], job.type if limit.type is None and job.resource == "default" else "", job.partition)
            for place, limit in self._places(job)
        ]

    def claimed(self, job_id: str) -> None:
        job = self.jobs[job_id]
        job.status, job.leased, job.ran = JobStatus.RUNNING, True, True
        if job.group_id and self.groups[job.group_id].status is GroupStatus.QUEUED:
            self.groups[job.group_id].status = GroupStatus.RUNNING

    # --- how it ends --------------------------------------------------------------------------------------

    def settled(self, job_id: str, outcome: Outcome, now: datetime) -> tuple[bool, datetime | None]:
        """Ends a run; whether a retry or a continuation must follow, and when it may start."""
        job = self.jobs[job_id]
        job.leased = False
        if job.status is JobStatus.CANCELLED:
            return False, None
        job.status = JobStatus(outcome.status.value)
        if outcome.status is RunStatus.CONTINUED:
            [wait] = outcome.waits
            is_over = wait.name is not None and self.signals[job.root_id, wait.name] >= wait.number
            return True, None if is_over else wait.ends_at(now)
        if outcome.status is not RunStatus.FAILED:
            return False, None
        kind = outcome.error_kind or ErrorKind.ERROR
        job.counted += kind in COUNTED_KINDS
        if outcome.retry_after_s is not None:
            until = now + timedelta(seconds=outcome.retry_after_s)
            for place in self._throttled_places(job):
                self.throttles[place] = max(until, self.throttles.get(place, until))
            if job.max_attempts > 0:
                return True, until
        if kind is ErrorKind.INTERRUPTED and job.max_attempts > 0:
            return True, None
        if kind in COUNTED_KINDS and job.counted <= job.max_attempts:
            return True, now + timedelta(seconds=10 * 2 ** (job.counted - 1))
        job.permanently_failed = True
        return False, None

    def retried(self, job_id: str, retry_id: str, not_before: datetime | None, now: datetime, outcome: Outcome) -> None:
        """The job that follows one that failed or continued stands in its place, with its key if that is free.

        One that continued has started: a key that counts while it is queued is left behind.
        """
        job = self.jobs[job_id]
        job.retried_by = retry_id
        retry = ModelJob(
            retry_id,
            job.type,
            job.resource,
            job.priority,
            job.position,
            now,
            job.max_attempts,
            not_before,
            job.group_id,
            job.sequence,
            job.partition,
            job.weight,
            counted=job.counted,
            root_id=job.root_id,
            has_begun=job.has_begun or outcome.status is RunStatus.CONTINUED,
        )
        has_started = outcome.status is RunStatus.CONTINUED and job.unique_while == "queued"
        if job.unique_key is not None and self.holder_of(job.unique_key) is None and not has_started:
            retry.unique_key, retry.unique_while = job.unique_key, job.unique_while
        for wait in outcome.waits:
            if wait.name is not None and self.signals[job.root_id, wait.name] < wait.number:
                retry.waits_for = (wait.name, wait.number)
                retry.waiting = not_before is None
        self.jobs[retry_id] = retry

    def holder_of(self, unique_key: str) -> ModelJob | None:
        return next((job for job in self.jobs.values() if job.unique_key == unique_key and job.holds_key), None)

    def signalled(self, job_id: str, name: str) -> int | None:
        """The number of a signal to the chain of a job; None if nobody is left to take it."""
        tip = self.tip(job_id)
        if tip.status.is_terminal:
            return None
        self.signals[tip.root_id, name] += 1
        number = self.signals[tip.root_id, name]
        if tip.status is JobStatus.QUEUED and tip.waits_for == (name, number):
            tip.waiting, tip.waits_for, tip.not_before = False, None, None
        return number

    # --- dependencies -------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Lets the ends of chains open, cancel or skip what depends on them, until nothing more follows."""
        is_settled = False
        while not is_settled:
            is_settled = True
            for job in self.jobs.values():
                if job.status is not JobStatus.QUEUED or not job.blocked:
                    continue
                job.met |= {root_id: end for root_id in job.after if (end := self._end_of(root_id)) is not None}
                is_broken = any(end is not JobStatus.COMPLETED for end in job.met.values())
                if is_broken and job.on_upstream != "run":
                    job.status = JobStatus.SKIPPED if job.on_upstream == "skip" else JobStatus.CANCELLED
                    job.ran = job.on_upstream == "skip"
                    is_settled = False
                elif len(job.met) == len(job.after):
                    job.blocked = False

    def _end_of(self, root_id: str) -> JobStatus | None:
        """How a chain ended, if it has, and nothing of it runs any more."""
        tip = self.tip(root_id)
        is_over = tip.status.is_terminal and not tip.leased
        return tip.status if is_over and (tip.status is not JobStatus.FAILED or tip.permanently_failed) else None

    def tip(self, job_id: str) -> ModelJob:
        job = self.jobs[job_id]
        while job.retried_by:
            job = self.jobs[job.retried_by]
        return job

    def cancelled(self, job: ModelJob, reason: str) -> None:
        job.status, job.reason = JobStatus.CANCELLED, reason

    # --- groups -------------------------------------------------------------------------------------------

    def step(self, group_id: str | None) -> None:
        if group_id is None or self.groups[group_id].status.is_terminal:
            return
        group = self.groups[group_id]
        members = self._members(group_id)
        step = GroupFailurePolicy(group.mode, group.on_failure).step(members)
        for job_id in step.open_gates:
            self.jobs[job_id].gated = False
        for job_id in step.cancel:
            self.cancelled(self.jobs[job_id], step.reason)
        for job_id in step.skip:
            self.jobs[job_id].status = JobStatus.SKIPPED
            self.jobs[job_id].reason = step.reason
            self.jobs[job_id].ran = True
        group.status = step.status

    def _members(self, group_id: str) -> list[Member]:
        chains: dict[int, list[ModelJob]] = {}
        for job in self.jobs.values():
            if job.group_id == group_id:
                chains.setdefault(job.sequence or 0, []).append(job)
        members = []
        for sequence, chain in chains.items():
            tip = self.tip(chain[0].id)
            members.append(
                Member(
                    sequence,
                    tip.id,
                    tip.status,
                    is_gated=tip.gated and tip.status is JobStatus.QUEUED,
                    holds_lease=any(job.leased for job in chain),
                    failed_for_good=tip.permanently_failed,
                    skipped_by_policy=tip.status is JobStatus.SKIPPED and tip.reason is not None,
                    ever_ran=any(job.ran for job in chain),
                )
            )
        return members
