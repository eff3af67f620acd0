"""Handlers that print and log with the standard library, as people write them: `holdbeat worker tests.crash.…`."""

from __future__ import annotations

import asyncio
import logging

from holdbeat import App

app = App()
log = logging.getLogger("shop.orders")


def _talk(kind: str) -> None:
    print(f"printed in {kind}")
    print("in", "pieces", end=" ")
    print("until here")
    log.info("an order of %s", kind, extra={"job": "their own field", "run": 7})
    log.debug("not this")


@app.job(retries=0)
async def talk_async() -> None:
    _talk("async")
    await asyncio.gather(asyncio.to_thread(log.warning, "from a thread of async"))


@app.job(retries=0)
def talk_thread() -> None:
    _talk("thread")


@app.job(retries=0, isolation="process")
def talk_process() -> None:
    _talk("process")


@app.job(retries=0)
def fail() -> None:
    raise ValueError("the shop is closed")


@app.job(retries=0, isolation="process")
def fail_in_process() -> None:
    raise ValueError("the shop is closed")


@app.job(retries=0)
def flood() -> None:
    for number in range(40_000):
        print(number, "x" * 60)
