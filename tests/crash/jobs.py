"""An App for real worker processes: `holdbeat worker tests.crash.jobs:app --store …`.

Handlers note what they do in a file that a parameter names, one line each, on disk before they go on.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

from holdbeat import App, Context

app = App()


def note(path: str, *words: object) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    os.fsync(descriptor)
    os.close(descriptor)


@app.job
async def work(ctx: Context, diary: str, seconds: float = 0.0) -> str:
    note(diary, "begun", ctx.run_id, ctx.fence, os.getpid())
    await asyncio.sleep(seconds)
    note(diary, "ended", ctx.run_id, ctx.fence, os.getpid())
    return "done"


@app.job
def block(ctx: Context, diary: str, seconds: float = 0.0) -> str:
    """As `work`, in a thread that does not listen."""
    note(diary, "begun", ctx.run_id, ctx.fence, os.getpid())
    time.sleep(seconds)
    note(diary, "ended", ctx.run_id, ctx.fence, os.getpid())
    return "done"


@app.job
async def seize(ctx: Context, diary: str, seconds: float) -> str:
    """An async handler that lets nothing else happen in its event loop."""
    ctx.log("the last words")
    note(diary, "begun", ctx.run_id, ctx.fence, os.getpid())
    time.sleep(seconds)  # noqa: ASYNC251
    note(diary, "ended", ctx.run_id, ctx.fence, os.getpid())
    return "done"


@app.job
async def unsubscribe(ctx: Context, diary: str) -> None:
    """An async handler that swallows every request to end."""
    note(diary, "begun", ctx.run_id, ctx.fence, os.getpid())
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            note(diary, "told", ctx.run_id)


@app.job(retries=0, resource="many")
async def quick(ctx: Context, diary: str, number: int) -> int:
    note(diary, "did", number, ctx.run_id, ctx.fence)
    return number


NOTE_TIMES = """
import sys, time
while True:
    with open(sys.argv[1], "a") as file:
        file.write(f"{sys.argv[2]} {time.monotonic()}\\n")
    time.sleep(0.05)
"""


@app.job(isolation="process")
def delegate(ctx: Context, diary: str, is_session: bool) -> None:
    """Has a process of its own that starts another, in its session or in a new one, and waits for it."""
    note(diary, "begun", ctx.run_id, time.monotonic())
    argv = [sys.executable, "-c", NOTE_TIMES, diary, f"step {ctx.run_id}"]
    subprocess.run(argv, start_new_session=is_session)
