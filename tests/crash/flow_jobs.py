"""Job types that share one GPU, in an App for real worker processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdbeat import App, Context
from tests.crash.jobs import note
from tests.waiting import eventually

app = App()


def is_there(path: str) -> bool:
    return Path(path).exists()


def is_first(path: str) -> bool:
    """Whether nobody has asked before."""
    was_there = is_there(path)
    Path(path).touch()
    return not was_there


@app.job(resource="gpu", retries=0)
def hold(diary: str, until: str) -> None:
    """Runs until a file is there, for a minute at the most."""
    note(diary, "holds")
    eventually(lambda: is_there(until), 60)


@app.job(resource="gpu", affinity="model", retries=0)
async def write(diary: str, model: str) -> None:
    note(diary, "writes", model)


@app.job(resource="gpu", preemptible=True, retries=0)
async def batch(ctx: Context, diary: str) -> str:
    def load() -> str:
        note(diary, "loads")
        return "loaded"

    state = await ctx.step("load", load)
    note(diary, "batch", ctx.attempt)
    if is_first(f"{diary}.again"):
        await asyncio.Event().wait()
    return f"{state} and done"


@app.job(resource="gpu", retries=0)
async def answer() -> str:
    return "the answer"
