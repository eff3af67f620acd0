"""Celery with Redis as its broker and no result backend, which is the default."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

from celery import Celery

from benchmarks.peers.programs import common

app = Celery("bench", broker=common.store())


@app.task(name="work")
def work(number: int) -> None:
    common.append_line(number)


def open_client(callers: int) -> contextlib.nullcontext[SimpleNamespace]:
    return contextlib.nullcontext(SimpleNamespace(one=work.delay, many=None))


if __name__ == "__main__":
    common.run(open_client, lambda: None)
