"""What a process does that is killed before its n-th statement, while it fires or settles on a store."""

from __future__ import annotations

import os
import signal
from typing import Any

from holdbeat.domain.clock import ManualClock, from_iso
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.store.firing.fire_due import fire_due
from holdbeat.store.postgres.transaction import PostgresTransaction
from holdbeat.store.running.settle import settle
from holdbeat.store.sqlite.transaction import SqliteTransaction
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


def act_until_killed(url: str, instant: str, act: str, number: int) -> None:
    """Ends alive, with the exit code 0, only if the act has fewer statements than `number`."""
    global _left
    store = open_at(url, clock=ManualClock(from_iso(instant)), create=False)
    claims = claim_all(store) if act == "settle" else []
    for kind in (SqliteTransaction, PostgresTransaction):
        for name in ("_run", "insert", "write_events"):
            _doomed(kind, name)
    _left = number
    if act == "fire":
        store.write_sync(fire_due, 500)
    else:
        store.write_sync(settle, [settlement(claim, Outcome.failed(ErrorKind.ERROR, "it broke")) for claim in claims])
    os._exit(0)
