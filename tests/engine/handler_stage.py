"""A stage for handlers without a store: reports that are written down, and one run on it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holdbeat.domain.clock import SystemClock
from holdbeat.domain.job import Job, JobStatus, RetryPolicy
from holdbeat.domain.run import Outcome
from holdbeat.handlers.context import Context
from holdbeat.handlers.handler import make_handler
from holdbeat.handlers.job_type import JobType
from holdbeat.handlers.stop import StopSignal

RUN_ID = "01890000-0000-7000-8000-{:012x}"
_runs = iter(range(os.getpid() << 16, 1 << 47))


class Script:
    """Reports that write down what they are told, and call back at each line of the log."""

    def __init__(self) -> None:
        self.progressed: list[tuple[float | None, str | None]] = []
        self.steps: dict[str, datetime] = {}
        self.logged: list[tuple[str, str]] = []
        self.artifacts: dict[str, bytes] = {}
        self.on_log: Callable[[str], None] = lambda text: None

    def progress(self, fraction: float | None, message: str | None) -> None:
        self.progressed.append((fraction, message))

    def open_steps(self) -> dict[str, datetime]:
        return self.steps

    def log(self, stream: str, text: str) -> None:
        self.logged.append((stream, text))
        self.on_log(text)

    def artifact(self, name: str, data: bytes | Path) -> None:
        if name == "refused":
            raise ValueError("the artifact is too large")
        self.artifacts[name] = data if isinstance(data, bytes) else data.read_bytes()

    def text(self, stream: str) -> str:
        return "".join(text for each, text in self.logged if each == stream)


def a_job(**changes: Any) -> Job:
    defaults: dict[str, Any] = {
        "id": "01890000-0000-7000-8000-00000000abcd",
        "type": "story",
        "params": {"words": 3},
        "status": JobStatus.RUNNING,
        "priority": 7,
        "position": 100,
        "resource": "default",
        "retry_policy": RetryPolicy(max_attempts=1),
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "attempt": 2,
        "labels": {"team": "night"},
    }
    return Job(**{**defaults, **changes})


class Stage:
    """One run of one job type."""

    def __init__(self, job_type: JobType, *, timeout_s: float | None = None, max_log_bytes: int = 65_536) -> None:
        self.script = Script()
        self.stop = StopSignal()
        self.stopped_at = 0.0
        self.run_id = RUN_ID.format(next(_runs))
        self.job_type = job_type
        self.handler = make_handler(job_type)
        self.ctx = Context(
            run_id=self.run_id,
            type=job_type.name,
            fence=41,
            reports=self.script,
            stop=self.stop,
            job=a_job(type=job_type.name),
            deadline=None if timeout_s is None else SystemClock().now() + timedelta(seconds=timeout_s),
            max_log_bytes=max_log_bytes,
        )

    async def run(self, within_s: float = 30, **params: Any) -> Outcome:
        async with asyncio.timeout(within_s):
            return await self.handler.run(self.ctx, params, self.stop)

    def stop_when_it_says(self, word: str, reason: str, *, grace_s: float | None = 10) -> None:
        """Stops the handler as soon as it has logged the word: surely in the middle of its work."""

        def on_log(text: str) -> None:
            if word in text:
                self.stopped_at = time.monotonic()
                self.stop.set(reason, grace_s=grace_s)

        self.script.on_log = on_log


def on_stage(function: Callable[..., Any], isolation: str | None = None, **options: Any) -> Stage:
    stage_options = {key: options.pop(key) for key in ("timeout_s", "max_log_bytes") if key in options}
    return Stage(JobType.from_function(function, isolation=isolation, **options), **stage_options)


def is_alive(pid: int) -> bool:
    """Whether a process is there and is more than a zombie that its new parent has not collected."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def marked(run_id: str) -> list[int]:
    """The living processes that carry a run's mark."""
    mark = f"HOLDBEAT_RUN_ID={run_id}".encode()
    collected = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in environ.read_bytes() and is_alive(int(environ.parent.name)):
                collected.append(int(environ.parent.name))
    return collected
