"""UnstoredResults: results of ended runs until the store has accepted or refused them.

Guards DEC-008: a result is kept and offered again over a full disk or a database that restarts. One result that cannot
be stored must not hold up the others, so after a failure the results of that cycle are offered one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdbeat.domain.lease import Settlement
from holdbeat.domain.run import ErrorKind, Outcome
from holdbeat.engine.run_lines import EndedRun


class UnstoredResults:
    def __init__(self, faults_of_data: tuple[type[Exception], ...]) -> None:
        self._faults_of_data = faults_of_data
        self._waiting: list[EndedRun] = []
        self._offered: set[str] = set()
        """Leases whose result is in a cycle that the store has not answered."""
        self._singly = 0
        """So many results are offered one by one, since one of them cannot be stored."""
        self._has_stuck = False
        """A result could not be stored even alone, through no fault of its own: claims go without results once."""

    def __len__(self) -> int:
        """How many wait for a cycle."""
        return len(self._waiting)

    @property
    def any_left(self) -> bool:
        """Whether any result is not stored yet, those in a cycle included."""
        return bool(self._waiting or self._offered)

    def lease_ids(self) -> list[str]:
        """Leases of all results that are not stored yet; may be called from any thread."""
        waiting, offered = list(self._waiting), list(self._offered)
        return [*offered, *(run.settlement.lease_id for run in waiting)]

    def not_offered(self) -> list[Settlement]:
        """The results that wait for a cycle; may be called from any thread."""
        return [run.settlement for run in list(self._waiting)]

    def add(self, run: EndedRun) -> None:
        self._waiting.append(run)

    def take(self, *, may_claim: bool, any_slot_free: bool) -> tuple[list[EndedRun], bool]:
        """The results for the next cycle, and whether that cycle may claim too."""
        if self._singly and self._waiting:
            self._singly -= 1
            return self._offer(self._waiting[:1], self._waiting[1:]), False
        if self._has_stuck and may_claim and any_slot_free:
            self._has_stuck, self._singly = False, len(self._waiting)
            return [], True
        return self._offer(self._waiting, []), may_claim

    def take_all(self) -> list[EndedRun]:
        return self._offer(self._waiting, [])

    def _offer(self, runs: list[EndedRun], rest: list[EndedRun]) -> list[EndedRun]:
        self._waiting = rest
        self._offered.update(run.settlement.lease_id for run in runs)
        return runs

    def answered(self, runs: Sequence[EndedRun]) -> None:
        """The store has accepted or refused these."""
        self._offered.difference_update(run.settlement.lease_id for run in runs)

    def take_back(self, runs: list[EndedRun]) -> None:
        """The cycle was not stored: its results wait again, ahead of the others."""
        self._waiting = runs + self._waiting
        self.answered(runs)

    def suspect(self, runs: Sequence[EndedRun], error: Exception, *, has_claimed: bool) -> None:
        """After a cycle that failed for a reason of its own (and was taken back): finds the result to blame.

        Only a result that is itself to blame ends its run FAILED. Any other error says nothing about the run: its
        result goes to the end of the queue and is offered again for as long as it takes.
        """
        if not runs:
            return
        if len(runs) > 1 or has_claimed:
            self._singly = len(runs)
        elif not isinstance(error, self._faults_of_data):
            self._has_stuck = True
            self._waiting.append(self._waiting.pop(0))
        else:
            runs[0].settlement.outcome = Outcome.failed(
                ErrorKind.ERROR, f"The result could not be stored: {type(error).__name__}: {error}"[:2000]
            )
