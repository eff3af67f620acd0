"""RetryController: whether a failed run is tried again, and when.

Guards DEC-007: at most `max_attempts` automatic retries per original, whatever happened in between, and a
verdict for every failure that has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta

from holdbeat.domain.ids import spread_of
from holdbeat.domain.job import Hold, Job, NewJob, RetryPolicy, UniqueWhile
from holdbeat.domain.run import COUNTED_KINDS, NEVER_RETRIED_KINDS, ErrorKind
from holdbeat.domain.waits import Wait, earliest


@dataclass(frozen=True, slots=True)
class RetryVerdict:
    """Either a retry that may start at `not_before`, or the end of the chain with its reason."""

    retry: bool
    not_before: datetime | None
    reason: str


def delay_s(policy: RetryPolicy, retry_number: int, *, spread: float = 0.0) -> float:
    """The wait before retry n = 0, 1, 2 …: base × 2^n, spread by up to `jitter` below the cap, and never above it."""
    exponent = min(retry_number, 64)
    delay = min(policy.base_delay_s * 2.0**exponent, policy.max_delay_s / (1 + policy.jitter))
    return min(delay * (1 + policy.jitter * spread), policy.max_delay_s)


class RetryController:
    """Decides what follows a FAILED run. Pure: counts and times are handed in."""

    @staticmethod
    def decide(
        job: Job,
        kind: ErrorKind,
        counted_failures: int,
        now: datetime,
        retry_after_s: float | None = None,
        *,
        is_preempted: bool = False,
    ) -> RetryVerdict:
        """`counted_failures` are those of the whole chain back to its root, this one included if it counts.

        `retry_after_s` is what a run that was throttled was told to wait. One that was preempted agreed to that, and
        goes on whatever its policy says.
        """
        policy = job.retry_policy
        if kind in NEVER_RETRIED_KINDS:
            return RetryVerdict(False, None, f"a run that was {kind} is not retried")
        if is_preempted:
            return RetryVerdict(True, None, "interrupted for work of a higher priority: tried again, not counted")
        if policy.max_attempts == 0:
            return RetryVerdict(False, None, "it has no automatic retries")
        if kind is ErrorKind.THROTTLED:
            wait = retry_after_s or 0.0
            return RetryVerdict(
                True, now + timedelta(seconds=wait), f"throttled: tried again after {wait:g} s, not counted"
            )
        if kind not in COUNTED_KINDS:
            return RetryVerdict(True, None, "interrupted by a shutdown: tried again at once, not counted")
        if counted_failures > policy.max_attempts:
            most = policy.max_attempts
            spent = "the only automatic retry is" if most == 1 else f"all {most} automatic retries are"
            return RetryVerdict(False, None, f"{spent} used up")
        wait = delay_s(policy, counted_failures - 1, spread=spread_of(job.id))
        return RetryVerdict(
            True,
            now + timedelta(seconds=wait),
            f"retry {counted_failures} of {policy.max_attempts} after {wait:g} s",
        )


_LEFT_OUT = {"idempotency_key", "hold", "waits", "after", "expires_at"}
_CARRIED = {field.name for field in fields(Job)} & {field.name for field in fields(NewJob)} - _LEFT_OUT
"""The fields that a retry takes over from its original."""


def automatic_retry(job: Job, not_before: datetime | None) -> NewJob:
    """The Job that tries `job` again: it takes the position of its original (RET-02)."""
    retry = NewJob(**{name: getattr(job, name) for name in _CARRIED})
    retry.not_before = not_before
    retry.retry_of = job.id
    retry.retry_kind = "auto"
    retry.attempt = job.attempt + 1
    retry.root_id = job.chain_id
    return retry


def continuation(job: Job, waits: Sequence[Wait], now: datetime, *, is_over: bool) -> NewJob:
    """The Job in which the handler of `job` goes on once one of its waits is over: in the same place (WAIT-01).

    It is no retry: the attempt is not counted. The chain has started: a key that counts while it is queued is left.
    """
    until = None if is_over else earliest(waits, now)
    following = automatic_retry(job, until)
    following.retry_kind = "continue"
    following.attempt = job.attempt
    if following.unique_while == UniqueWhile.QUEUED:
        following.unique_key = following.unique_while = None
    following.waits = [wait.as_json(now) for wait in waits]
    if until is None and not is_over:
        following.hold = Hold.WAITING
    return following


def manual_retry(job: Job) -> NewJob:
    """The Job that a person asked for: end of its priority, no delay, outside the group (RET-04)."""
    retry = automatic_retry(job, None)
    retry.position = None
    retry.group_id = None
    retry.sequence = None
    retry.retry_kind = "manual"
    retry.is_awaited = False
    return retry
