"""A worker process that claims a job, says so, and waits to be killed: `python -m tests.conformance.doomed URL ID`."""

from __future__ import annotations

import dataclasses
import sys
import threading

from holdbeat.domain.clock import ManualClock
from holdbeat.engine.worker_identity import this_worker
from holdbeat.store.running.workers import register_worker
from tests.conformance.acts import claim_one, open_at
from tests.conformance.repair import TERMS


def main(url: str, worker_id: str) -> None:
    store = open_at(url, clock=ManualClock())
    store.announce_alive(worker_id)
    worker = this_worker("worker", slots=1, http_slots=0, types=["noop"], resources=None, version="")
    store.write_sync(register_worker, dataclasses.replace(worker, id=worker_id), TERMS)
    claim_one(store, worker=worker_id, terms=TERMS)
    print("working", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
