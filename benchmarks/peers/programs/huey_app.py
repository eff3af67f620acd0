"""Huey on SQLite with fsync."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

from huey import SqliteHuey

from benchmarks.peers.programs import common

# 64 threads that write wait for each other longer than the 5 seconds that are the default.
huey = SqliteHuey("bench", filename=common.store(), fsync=True, timeout=60)


@huey.task()
def work(number: int) -> None:
    common.append_line(number)


def open_client(callers: int) -> contextlib.nullcontext[SimpleNamespace]:
    return contextlib.nullcontext(SimpleNamespace(one=work, many=None))


if __name__ == "__main__":
    # Tasks go by the name of their module, which must not be __main__.
    from benchmarks.peers.programs import huey_app

    common.run(huey_app.open_client, huey_app.huey.storage.queue_size)
