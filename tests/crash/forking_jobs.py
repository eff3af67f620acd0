"""Handlers that fork processes of their own: `holdbeat worker tests.crash.forking_jobs:app`."""

from __future__ import annotations

import multiprocessing

from holdbeat import App

app = App()


def square(number: int) -> int:
    return number * number


def _squares() -> list[int]:
    # The end of the block sends SIGTERM to the processes of the pool.
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(square, [1, 2, 3])


@app.job(retries=0)
def pool_in_thread() -> list[int]:
    return _squares()


@app.job(retries=0)
async def pool_in_loop() -> list[int]:
    return _squares()
