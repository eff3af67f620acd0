"""Procrastinate with psycopg."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace

import procrastinate

from benchmarks.peers.programs import common

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=common.store()))


@app.task(name="work")
async def work(number: int) -> None:
    common.append_line(number)


@contextlib.asynccontextmanager
async def open_client(callers: int) -> AsyncIterator[SimpleNamespace]:
    async def one(number: int) -> None:
        await work.defer_async(number=number)

    async def many(numbers: Sequence[int]) -> None:
        await work.batch_defer_async(*({"number": number} for number in numbers))

    async with app.open_async():
        yield SimpleNamespace(one=one, many=many)


async def set_up() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


if __name__ == "__main__":
    common.run(open_client, set_up)
