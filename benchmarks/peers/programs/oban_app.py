"""Oban for Python."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

from oban import Job, Oban, worker
from oban.schema import install

from benchmarks.peers.programs import common


@worker(queue="default")
class Work:
    new: Any

    async def process(self, job: Job) -> None:
        common.append_line(job.args["number"])


@contextlib.asynccontextmanager
async def open_client(callers: int) -> AsyncIterator[SimpleNamespace]:
    pool = await Oban.create_pool(common.store())
    async with Oban(pool=pool) as oban:

        async def one(number: int) -> None:
            await oban.enqueue(Work.new({"number": number}))

        async def many(numbers: Sequence[int]) -> None:
            await oban.enqueue_many([Work.new({"number": number}) for number in numbers])

        yield SimpleNamespace(one=one, many=many)
    await pool.close()


async def set_up() -> None:
    pool = await Oban.create_pool(common.store())
    await install(pool)
    await pool.close()


if __name__ == "__main__":
    # Workers go by the name of their module, which must not be __main__.
    from benchmarks.peers.programs import oban_app

    common.run(oban_app.open_client, oban_app.set_up)
