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
    """Changed by the handler, in whatever thread it is."""
    stored: dict[str, datetime] | None = None
    """What the store knows of them; None if it has no row about them."""
    is_due: bool = False
    """Whether it is to be written whatever the store knows: the last time that failed."""


class OpenSteps:
    """Called from whatever threads the handlers use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        """Runs that have called a step, until they end."""

    @property
    def is_empty(self) -> bool:
        """Whether `take` has nothing to look at."""
        return not self._runs

    def of(self, lease: Lease) -> dict[str, datetime]:
        """The open steps of a run and when they began, which its handler keeps up to date."""
        with self._lock:
            run = self._runs.get(lease.id)
            if run is None:
                run = self._runs[lease.id] = _Run(lease)
            return run.steps

    def has_open(self, lease: Lease) -> bool:
        """Whether a run has an open step. One that has ended has, where it failed in one."""
        run = self._runs.get(lease.id)
        return run is not None and bool(run.steps)

    def take(self, now: datetime, *, ended: Lease | None = None) -> list[OpenStepsEntry]:
        """The rows to write now: of runs that have been in a step for a moment, and of one that has ended."""
        entries = []
        with self._lock:
            for lease_id, run in sorted(self._runs.items()):
                is_ended = ended is not None and lease_id == ended.id
                steps = run.steps.copy()
                if run.is_due or self._must_be_told(steps, run.stored, now, is_ended):
                    lease = run.lease
                    shown = [OpenStep(name, at) for name, at in list(steps.items())[:MOST_SHOWN]]
                    entries.append(OpenStepsEntry(lease.id, lease.worker_id, lease.fence, shown, now))
                    run.stored, run.is_due = steps, False
        return entries

    @staticmethod
    def _must_be_told(
        steps: dict[str, datetime], stored: dict[str, datetime] | None, now: datetime, is_ended: bool
    ) -> bool:
        if stored is not None:
            return stored != steps
        return bool(steps) and (is_ended or now - min(steps.values()) >= SHOWN_AFTER)

    def put_back(self, entries: list[OpenStepsEntry]) -> None:
        """Notes rows that could not be written, to write them again."""
        with self._lock:
            for entry in entries:
                if entry.lease_id in self._runs:
                    self._runs[entry.lease_id].is_due = True

    def forget(self, lease_ids: Iterable[str]) -> None:
        """These runs have ended, or have lost their leases."""
        if not self._runs:
            return
        with self._lock:
            for lease_id in lease_ids:
                self._runs.pop(lease_id, None)
