"""How many cycles of a worker are under way at once at the most, and how large one should be beside another."""

from __future__ import annotations

import sys

CYCLES = 2
"""One commits on the server while the handlers of the other run here. With one more each job takes a tenth more
processor time: sessions that add to the same pages wait for each other. The store's other writers are left to
submissions."""
BATCH = 128
"""So many results and free slots are worth a cycle beside another one: with 65 jobs a cycle each cost a third more."""


def cycle_size(slots: int, cycles: int) -> int:
    """How many results start a cycle while handlers are ready to run, or beside another cycle.

    Several cycles share the slots: some commit on the server while the handlers of another run here. SQLite's one
    writer needs the interpreter's lock for every row: beside running handlers it waits for that lock longer than the
    overlap saves (measured), so there a cycle starts after the handlers that are ready.
    """
    return max(slots // cycles, min(slots // 2, BATCH), 1) if cycles > 1 else sys.maxsize
