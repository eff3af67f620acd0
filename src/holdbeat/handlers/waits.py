"""Suspension: how a handler that must wait leaves its run, to be called again when the wait is over."""

from __future__ import annotations

from holdbeat.domain.waits import Wait


class SignalTimeout(Exception):
    """The signal that a handler waited for did not come in time."""


class Suspended(BaseException):
    """Ends the run of a handler that waits. The next job of its chain calls the handler again.

    It derives from BaseException, so that a handler's `except Exception` does not catch it. Clean up in `finally`, and
    raise it again where you catch it.
    """

    def __init__(self, waits: list[Wait]) -> None:
        super().__init__("the run ends here, and goes on when the wait is over")
        self.waits = waits
        """All waits of the run; parallel ones may be added until the handler has ended."""
