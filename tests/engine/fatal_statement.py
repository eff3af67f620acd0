"""A process that fires or settles on a store and is killed before its n-th statement.

    python -m tests.engine.fatal_statement URL INSTANT ACT N

Prints `done` if it came to its end alive.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from holdbeat.domain.clock import ManualClock, from_iso
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.store.postgres_transaction import PostgresTransaction
from holdbeat.store.sqlite_transaction import SqliteTransaction
from holdbeat.store.verbs.firing import fire_due
from holdbeat.store.verbs.settle import settle
from tests.conformance.acts import claim_all, open_at, settlement

_left = 0


def _doomed(kind: type[Any], name: str) -> None:
    """Lets a statement of the transaction be the last thing that the process does not do."""
    statement = getattr(kind, name)

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        global _left
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return statement(self, *args, **kwargs)

    setattr(kind, name, counted)


def main(url: str, instant: str, act: str, number: str) -> None:
    global _left
    store = open_at(url, clock=ManualClock(from_iso(instant)), create=False)
    claims = claim_all(store) if act == "settle" else []
    for kind in (SqliteTransaction, PostgresTransaction):
        for name in ("_run", "insert", "write_events"):
            _doomed(kind, name)
    _left = int(number)
    if act == "fire":
        store.write_sync(fire_due, 500)
    else:
        store.write_sync(settle, [settlement(each, Outcome.failed(ErrorKind.ERROR, "it broke")) for each in claims])
    print("done", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
