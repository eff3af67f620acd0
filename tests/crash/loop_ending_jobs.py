"""Handlers whose code ends the event loop of their worker, in callbacks and tasks that are not the handler itself."""

from __future__ import annotations

import asyncio
import sys

from holdbeat import App

app = App()
_tasks: list[asyncio.Task[None]] = []


@app.job(retries=0)
async def exits_in_callback() -> str:
    asyncio.get_running_loop().call_soon(sys.exit, 0)
    await asyncio.sleep(0.05)
    return "went on"


@app.job(retries=0)
async def interrupts_in_task() -> str:
    async def interrupt() -> None:
        raise KeyboardInterrupt

    _tasks.append(asyncio.create_task(interrupt()))
    await asyncio.sleep(0.05)
    return "went on"


@app.job(retries=0)
async def stops_loop() -> str:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.05)
    return "went on"
