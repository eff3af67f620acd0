"""The job types of a torture: each says when it begins and ends, and some fail, wait in threads or in processes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

from holdbeat.app import App
from holdbeat.domain.job import RetryPolicy
from holdbeat.handlers.context import Context, PermanentFailure, Skip
from holdbeat.settings import Settings
from holdbeat.torture.durable import durable_work
from holdbeat.torture.witness import note

SHARED, SINGLE = "torture_shared", "torture_single"
"""Resources with names of their own: on PostgreSQL a claim locks its pool by name, over all stores of a database."""
LIMITS = {SHARED: 3, SINGLE: 1}
CONCURRENCY = "resources:" + ",".join(f"{name}={limit}" for name, limit in LIMITS.items())
RETRIES = RetryPolicy(max_attempts=3, base_delay_s=0.2, max_delay_s=2, jitter=0.5)
TICK_S = 0.02


class Deliberate(Exception):
    """A failure that a torture asked for."""


@contextlib.contextmanager
def witnessed(ctx: Context, resource: str, token: str | None = None) -> Iterator[None]:
    """Notes the beginning and the end of a run, however it ends."""
    job_id = ctx.job.id if ctx.job is not None else None
    note("start", run=ctx.run_id, job=job_id, fence=ctx.fence, resource=resource, token=token)
    how = "stopped"
    try:
        yield
        how = "returned"
    except (Deliberate, PermanentFailure, Skip):
        how = "raised"
        raise
    finally:
        note("end", run=ctx.run_id, how=how)


async def _sleep_in_pieces(seconds: float) -> None:
    """Sleeps in pieces: what SIGSTOP interrupts is still to be done afterwards."""
    for _ in range(int(seconds / TICK_S)):
        await asyncio.sleep(TICK_S)


async def work(ctx: Context, seconds: float = 0.0, token: str | None = None) -> float:
    with witnessed(ctx, SHARED, token):
        await _sleep_in_pieces(seconds)
    return seconds


async def alone(ctx: Context, seconds: float = 0.0, token: str | None = None) -> float:
    """As `work`, where only one may run at a time."""
    with witnessed(ctx, SINGLE, token):
        await _sleep_in_pieces(seconds)
    return seconds


async def fail_sometimes(ctx: Context, seconds: float = 0.0, failures: int = 1) -> float:
    """Fails as often as it is told to; a negative number fails for good at once, -2 is a Skip."""
    with witnessed(ctx, SHARED):
        await _sleep_in_pieces(seconds)
        if failures == -1:
            raise PermanentFailure("told to fail for good")
        if failures == -2:
            raise Skip("told to skip")
        if ctx.job is not None and ctx.job.attempt < failures:
            raise Deliberate(f"told to fail {failures} times")
    return seconds


async def durable(ctx: Context, work: dict[str, Any], seconds: float = 0.0, failures: int = 0) -> None:
    """Steps and waits, and then it fails as often as it is told to."""
    with witnessed(ctx, SHARED):
        await durable_work(ctx, note, lambda: _sleep_in_pieces(seconds), **work)
        if ctx.job is not None and ctx.job.attempt < failures:
            raise Deliberate(f"told to fail {failures} times")


def thread(ctx: Context, seconds: float = 0.0) -> float:
    """In a thread that listens for the end."""
    with witnessed(ctx, SHARED):
        for _ in range(int(seconds / TICK_S)):
            ctx.checkpoint()
            time.sleep(TICK_S)
    return seconds


def child(ctx: Context, seconds: float = 0.0) -> float:
    """In a process of its own, which says again and again that it is still there."""
    with witnessed(ctx, SINGLE):
        for _ in range(int(seconds / TICK_S) + 1):
            note("tick", run=ctx.run_id)
            time.sleep(TICK_S)
    return seconds


def torture_app(settings: Settings) -> App:
    """An App with these types. Limits are those of the torture, so that the checker knows them."""
    app = App(settings=settings)
    app.job_with(work, retries=RETRIES, resource=SHARED)
    app.job_with(alone, retries=RETRIES, resource=SINGLE)
    app.job_with(fail_sometimes, retries=RETRIES, resource=SHARED)
    app.job_with(durable, retries=RETRIES, resource=SHARED)
    app.job_with(thread, retries=RETRIES, resource=SHARED)
    app.job_with(child, retries=RETRIES, resource=SINGLE, isolation="process")
    return app
