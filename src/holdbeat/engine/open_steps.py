"""OpenSteps: in which steps the handlers of this process are, for whoever asks what a job does now (STEP-05).

Guards the cost of a step: one that ends soon is never written. One that stays open is written with the other reports
of the process, once when it has been open for a moment and once when it is over.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdbeat.domain.lease import Lease
from holdbeat.domain.steps import OpenStep
from holdbeat.store.running.run_output import OpenStepsEntry

SHOWN_AFTER = timedelta(seconds=0.5)
MOST_SHOWN = 100
"""Of a run with more open steps so many are shown."""


@dataclass(slots=True)
class _Run:
    lease: Lease
    steps: dict[str, datetime] = field(default_factory=dict)
    is_stored: bool = False
    """Whether the store has a row about it."""


class OpenSteps:
    """Called from whatever threads the handlers use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._changed: set[str] = set()
        """The runs of which the store may know too little."""

    @property
    def is_empty(self) -> bool:
        return not self._changed

    def note(self, lease: Lease, name: str, started_at: datetime | None) -> None:
        """A step has begun, or it is over."""
        with self._lock:
            run = self._runs.setdefault(lease.id, _Run(lease))
            if started_at is not None:
                run.steps[name] = started_at
            else:
                run.steps.pop(name, None)
            if run.steps or run.is_stored:
                self._changed.add(lease.id)
            else:
                del self._runs[lease.id]
                self._changed.discard(lease.id)

    def has_open(self, lease: Lease) -> bool:
        """Whether a run has an open step. One that has ended has, where it failed in one."""
        run = self._runs.get(lease.id)
        return run is not None and bool(run.steps)

    def take(self, now: datetime, *, ended: Lease | None = None) -> list[OpenStepsEntry]:
        """What is to be written now: of runs that have been in a step for a moment, and of one that has ended."""
        entries = []
        with self._lock:
            for lease_id in sorted(self._changed):
                run = self._runs[lease_id]
                is_ended = ended is not None and lease_id == ended.id
                if not is_ended and not run.is_stored and now - min(run.steps.values()) < SHOWN_AFTER:
                    continue
                lease = run.lease
                steps = [OpenStep(name, at) for name, at in list(run.steps.items())[:MOST_SHOWN]]
                entries.append(OpenStepsEntry(lease.id, lease.worker_id, lease.fence, steps, now))
                run.is_stored = True
                self._changed.discard(lease_id)
        return entries

    def put_back(self, entries: list[OpenStepsEntry]) -> None:
        """What could not be written is to be written again."""
        with self._lock:
            self._changed |= {entry.lease_id for entry in entries if entry.lease_id in self._runs}

    def forget(self, lease_ids: Iterable[str]) -> None:
        """These runs have ended, or have lost their leases."""
        if not self._runs:
            return
        with self._lock:
            for lease_id in lease_ids:
                self._runs.pop(lease_id, None)
                self._changed.discard(lease_id)
