"""How large a worker's cycle should be before another one is under way beside it."""

from __future__ import annotations

import sys

BATCH = 128
"""So many results and free slots are worth a cycle beside another one: with 65 jobs a cycle each cost a third more."""


def cycle_size(slots: int, writers: int) -> int:
    """How many results start a cycle while handlers are ready to run, or beside another cycle.

    With several writers the slots are divided among cycles: some commit on the server while the handlers of another run
    here. SQLite's one writer needs the interpreter's lock for every row: beside running handlers it waits for that lock
    longer than the overlap saves (measured), so there a cycle starts after the handlers that are ready.
    """
    return max(slots // writers, min(slots // 2, BATCH), 1) if writers > 1 else sys.maxsize
