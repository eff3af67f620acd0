"""Holdbeat through its public interface."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

from benchmarks.peers.programs import common
from holdbeat import App

app = App(store=common.store())


@app.job
async def work(number: int) -> None:
    common.append_line(number)


@contextlib.contextmanager
def open_client(callers: int) -> Iterator[SimpleNamespace]:
    async def one(number: int) -> None:
        await app.enqueue(work, number=number)

    async def many(numbers: Sequence[int]) -> None:
        await app.enqueue_many([app.call(work, number=number) for number in numbers])

    try:
        yield SimpleNamespace(one=one, many=many)
    finally:
        app.close()


if __name__ == "__main__":
    common.run(open_client, lambda: app.store.read_sync(lambda tx: None))
