"""The time limit of a client's read (SEC-08)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import apsw

from holdbeat.store.adapter import read_took_too_long

PROGRESS_STEPS = 50_000
"""Steps of SQLite's virtual machine between two looks at the clock: about a millisecond."""


@contextlib.contextmanager
def read_limit(connection: apsw.Connection, limit_s: float | None, monotonic: Callable[[], float]) -> Iterator[None]:
    """Interrupts what the connection executes once the time is over."""
    if limit_s is None:
        yield
        return
    ends = monotonic() + limit_s
    connection.set_progress_handler(lambda: monotonic() > ends, PROGRESS_STEPS)
    try:
        yield
    except apsw.InterruptError:
        raise read_took_too_long(limit_s) from None
    finally:
        connection.set_progress_handler(None)
