"""The job types of a simulation. Their work is to wait, and to fail as often as they are told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdbeat import App, Context, PermanentFailure
from holdbeat.domain.job import RetryPolicy
from holdbeat.settings import Settings
from holdbeat.torture.durable import durable_work
from tests.simulate.loop import OWNER

if TYPE_CHECKING:
    from tests.simulate.world import World

RETRIES = RetryPolicy(max_attempts=2, base_delay_s=10, max_delay_s=300, jitter=0.2)
PIECES = 8


async def toil(seconds: float) -> None:
    """Work in pieces: what a freeze interrupts is still to be done afterwards, as with real work."""
    for _ in range(PIECES):
        await asyncio.sleep(seconds / PIECES)


def make_app(world: World, settings: Settings) -> App:
    """Job types whose handlers note in the world when they begin and end."""
    app = App(settings=settings)

    @contextlib.contextmanager
    def witnessed(ctx: Context, resource: str, token: str | None) -> Iterator[None]:
        owner = OWNER.get()
        assert owner is not None
        job_id = ctx.job.id if ctx.job else None
        world.starts.append({
            "run": ctx.run_id, "job": job_id, "fence": ctx.fence, "resource": resource, "process": owner.name,
            "wall": world.database.clock.now().timestamp(), "monotonic": world.stamp(), "token": token,
        })  # fmt: skip
        how = "stopped"
        try:
            yield
            how = "returned"
        except Exception:
            how = "raised"
            raise
        finally:
            if not owner.is_dead and not world.loop.is_over:
                world.ends.append({"run": ctx.run_id, "monotonic": world.stamp(), "how": how})

    @app.job(retries=RETRIES)
    async def work(ctx: Context, seconds: float, number: int, token: str | None = None) -> float:
        with witnessed(ctx, "default", token):
            await toil(seconds)
        return seconds

    @app.job(retries=RETRIES, resource="single", timeout=200)
    async def alone(ctx: Context, seconds: float, number: int, token: str | None = None) -> float:
        with witnessed(ctx, "single", token):
            await toil(seconds)
        return seconds

    @app.job(retries=RETRIES)
    async def stumble(ctx: Context, seconds: float, number: int, failures: int) -> float:
        with witnessed(ctx, "default", None):
            await toil(seconds)
            if failures < 0:
                raise PermanentFailure("told to")
            if ctx.job is not None and ctx.job.attempt < failures:
                raise ValueError(f"told to fail {failures} times")
        return seconds

    @app.job(retries=RETRIES)
    async def durable(ctx: Context, work: dict[str, Any], seconds: float, failures: int) -> None:
        """Steps and waits, and then it fails as often as it is told to."""

        def note(kind: str, **fields: Any) -> None:
            world.seen[kind].append({**fields, "monotonic": world.stamp()})

        with witnessed(ctx, "default", None):
            await durable_work(ctx, note, lambda: toil(seconds), **work)
            if ctx.job is not None and ctx.job.attempt < failures:
                raise ValueError(f"told to fail {failures} times")

    @app.job(retries=RETRIES)
    async def watch(ctx: Context, seconds: float) -> float:
        """Of an adaptive schedule: one run in four fails for good, by its id."""
        with witnessed(ctx, "default", None):
            await toil(seconds)
            if int(ctx.run_id[-4:], 16) % 4 == 0:
                raise PermanentFailure("nothing there")
        return seconds

    return app
