"""PgQueuer with asyncpg: one connection for a single caller and for the worker, a pool for many callers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers.programs import common


@contextlib.asynccontextmanager
async def worker() -> AsyncIterator[PgQueuer]:
    """What `pgq run` is told to run."""
    connection = await asyncpg.connect(common.store())
    pgq = PgQueuer(AsyncpgDriver(connection))

    @pgq.entrypoint("work")
    async def work(job: Job) -> None:
        common.append_line(int(job.payload or b""))

    try:
        yield pgq
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def open_client(callers: int) -> AsyncIterator[SimpleNamespace]:
    if callers == 1:
        connection = await asyncpg.connect(common.store())
        queries = Queries(AsyncpgDriver(connection))
    else:
        connection = await asyncpg.create_pool(common.store())
        queries = Queries(AsyncpgPoolDriver(connection))

    async def one(number: int) -> None:
        await queries.enqueue("work", b"%d" % number)

    async def many(numbers: Sequence[int]) -> None:
        await queries.enqueue(["work"] * len(numbers), [b"%d" % number for number in numbers], [0] * len(numbers))

    try:
        yield SimpleNamespace(one=one, many=many)
    finally:
        await connection.close()


async def set_up() -> None:
    connection = await asyncpg.connect(common.store())
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


if __name__ == "__main__":
    common.run(open_client, set_up)
