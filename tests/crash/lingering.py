"""An App whose handlers leave threads behind for which the interpreter waits before it ends."""

from __future__ import annotations

import asyncio
import threading
import time

from holdbeat import App, Context
from tests.crash.jobs import note

app = App()


@app.job
async def executor_thread(ctx: Context, diary: str) -> None:
    note(diary, "begun", ctx.run_id)
    await asyncio.to_thread(time.sleep, 600)


@app.job
async def own_thread(ctx: Context, diary: str) -> str:
    threading.Thread(target=time.sleep, args=(600,), name="left-behind").start()
    note(diary, "begun", ctx.run_id)
    return "done"
