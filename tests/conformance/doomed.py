"""A worker process that claims a job, says so, and waits to be killed: `python -m tests.conformance.doomed URL ID`."""

from __future__ import annotations

import sys
import threading

from holdbeat.domain.clock import ManualClock
from tests.conformance.acts import claim_one, open_at
from tests.conformance.repair import TERMS, introduce


def main(url: str, worker_id: str) -> None:
    store = open_at(url, clock=ManualClock())
    store.announce_alive(worker_id)
    introduce(store, worker_id)
    claim_one(store, worker=worker_id, terms=TERMS)
    print("working", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
