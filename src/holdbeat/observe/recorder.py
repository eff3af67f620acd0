"""The Recorder: the interface through which the engine reports what it does, for metrics.

The engine calls these methods and does not know who listens; by default nobody does, and nothing is imported for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdbeat.domain.lease import Claim, Settlement


class Recorder:
    """Takes note of nothing. Each method is called once for what its name says, after it has been committed."""

    def record_cycle(self, claims: Sequence[Claim], settlements: Sequence[Settlement]) -> None:
        """A cycle of the dispatcher claimed these and gave these back; refused results are not among them."""

    def run_ended(self, type_: str, ran_s: float) -> None:
        """A handler has ended after so many seconds."""

    def beat(self, reached: bool) -> None:
        """A heartbeat reached the store, or did not."""

    def webhook_attempted(self, result: str) -> None:
        """An attempt to deliver a webhook: `delivered`, `retry`, `failed`, or `postponed` without an attempt."""

    def fired(self, late_s: float, count: int = 1) -> None:
        """The trigger made jobs of due times so many seconds after they were due."""

    def gate_passed(self, gate: str, outcome: str, waited_s: float, ran_s: float) -> None:
        """A request through a gate has ended: it waited and ran for so long."""

    def legacy_called(self, route: str) -> None:
        """A route of the legacy API was used."""


SILENT = Recorder()
