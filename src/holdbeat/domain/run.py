"""The JobRun: the audit record of executing one Job, and the one Outcome every execution ends in.

Guards INV-002: the fields of a run's start never change, and its end is written once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from holdbeat.domain.params import dumps
from holdbeat.domain.waits import Wait


class RunStatus(StrEnum):
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CONTINUED = "CONTINUED"


RUN_STATUSES = ("RUNNING", *map(str, RunStatus))
"""The words for states of a run in requests. A run that has not ended has no status of its own."""


class ErrorKind(StrEnum):
    """Why a run FAILED; decides whether an automatic retry follows."""

    ERROR = "error"
    EXIT = "exit"
    TIMEOUT = "timeout"
    CRASH = "crash"
    LOST = "lost"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    THROTTLED = "throttled"
    """The called service wants no other call before some time."""


COUNTED_KINDS = frozenset({ErrorKind.ERROR, ErrorKind.EXIT, ErrorKind.TIMEOUT, ErrorKind.CRASH, ErrorKind.LOST})
"""Failures that use up an attempt."""

LONGEST_RETRY_AFTER_S = 86_400.0
"""A called service can delay the next call by at most this."""

NEVER_RETRIED_KINDS = frozenset({ErrorKind.CANCELLED, ErrorKind.REJECTED})


@dataclass(frozen=True, slots=True)
class JobRun:
    id: str
    job_id: str
    template_id: str | None
    params_snapshot: dict[str, Any]
    worker_id: str | None
    fence: int
    started_at: datetime
    finished_at: datetime | None = None
    status: RunStatus | None = None
    exit_code: int | None = None
    error: str | None = None
    error_kind: ErrorKind | None = None
    artifacts: dict[str, Any] = field(default_factory=dict)
    omitted_result_bytes: int | None = None
    """The size of a result that was not read because it is large; None if the result is here."""

    @property
    def result(self) -> Any:
        """What the handler returned: the artifact named `result`."""
        return self.artifacts.get("result")


@dataclass(slots=True)
class Outcome:
    """How one execution ended. The Executor ends with exactly one of these."""

    status: RunStatus
    result: Any = None
    error: str | None = None
    error_kind: ErrorKind | None = None
    exit_code: int | None = None
    artifacts: dict[str, Any] = field(default_factory=dict)
    waits: tuple[Wait, ...] = ()
    """What the handler waits for, if it goes on in the next job of its chain."""
    is_preempted: bool = False
    """Whether it was interrupted for work of a higher priority: then it is tried again in any case."""
    retry_after_s: float | None = None
    """For how long the called service wants no other call, if the error kind is `throttled`."""

    @staticmethod
    def completed(result: Any = None, *, exit_code: int | None = None) -> Outcome:
        return Outcome(RunStatus.COMPLETED, result, None, None, exit_code)

    @staticmethod
    def failed(kind: ErrorKind, error: str, *, exit_code: int | None = None, result: Any = None) -> Outcome:
        return Outcome(RunStatus.FAILED, result=result, error=error, error_kind=kind, exit_code=exit_code)

    @staticmethod
    def throttled(error: str, retry_after_s: float, *, result: Any = None) -> Outcome:
        return Outcome(
            RunStatus.FAILED,
            result,
            error,
            ErrorKind.THROTTLED,
            retry_after_s=min(retry_after_s, LONGEST_RETRY_AFTER_S),
        )

    @staticmethod
    def skipped(reason: str) -> Outcome:
        return Outcome(RunStatus.SKIPPED, error=reason)

    @staticmethod
    def continued(waits: tuple[Wait, ...]) -> Outcome:
        return Outcome(RunStatus.CONTINUED, waits=waits)

    def artifacts_text(self) -> str:
        """Artifacts as stored with the run: those the handler kept, and the returned value as `result`."""
        if self.artifacts:
            return dumps(self.artifacts if self.result is None else {**self.artifacts, "result": self.result})
        return "{}" if self.result is None else f'{{"result":{dumps(self.result)}}}'
