"""DBOS: a queue of workflows, each of which is one function. It has no command for a worker: `worker` is the verb."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

from dbos import DBOS, DBOSClient

from benchmarks.peers.programs import common

QUEUE = "bench"
SLOTS = 256


@DBOS.workflow(name="work")
def work(number: int) -> None:
    common.append_line(number)


@contextlib.contextmanager
def launched() -> Iterator[None]:
    DBOS(config={"name": "bench", "system_database_url": common.store(), "application_version": "1"})
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=SLOTS)
    try:
        yield
    finally:
        DBOS.destroy()


@contextlib.contextmanager
def open_client(callers: int) -> Iterator[SimpleNamespace]:
    client = DBOSClient(system_database_url=common.store())

    def one(number: int) -> None:
        client.enqueue({"queue_name": QUEUE, "workflow_name": "work", "application_name": "bench"}, number)

    try:
        yield SimpleNamespace(one=one, many=None)
    finally:
        client.destroy()


def set_up() -> None:
    with launched():
        pass


def work_until_stopped() -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with launched():
        stopped.wait()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work_until_stopped()
    else:
        common.run(open_client, set_up)
