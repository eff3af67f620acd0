"""The StopSignal: how a running handler is told to end, and what its end then counts as.

Guards that a run ends for one reason. The first reason given stays, with one exception: `lost` replaces any
other, because once the lease is gone nothing that the handler does counts any more. A later call can shorten
the grace before a process is killed, never lengthen it.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from enum import StrEnum

from holdbeat.domain.job import DEFAULT_CANCEL_GRACE_S
from holdbeat.domain.run import ErrorKind, Outcome, RunStatus


class StopReason(StrEnum):
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    LOST = "lost"
    PREEMPTED = "preempted"

    @property
    def error_kind(self) -> ErrorKind:
        return ErrorKind.INTERRUPTED if self is StopReason.PREEMPTED else ErrorKind(self.value)


_SENTENCES = {
    StopReason.CANCELLED: "Cancelled while running",
    StopReason.TIMEOUT: "Ran beyond its timeout",
    StopReason.INTERRUPTED: "Interrupted by a shutdown",
    StopReason.PREEMPTED: "Interrupted for work of a higher priority",
    StopReason.LOST: "Stopped because its lease was lost",
}


_OBEYED = ("Cancelled", "asyncio.exceptions.CancelledError")
"""How the error begins of a handler that stopped as requested; repeating that says nothing."""


class StopSignal:
    """Set once to tell the handler to end; seen by threads, tasks and processes. Any thread may set it."""

    def __init__(self) -> None:
        # Reentrant, because a signal handler may set it while its own thread is in the middle of doing so.
        self._lock = threading.RLock()
        self._waited_for: threading.Event | None = None
        """Made when the first thread waits: most runs end without one."""
        self.reason: StopReason | None = None
        self.grace_s: float | None = None
        """Seconds from the latest call to `set` until a process may be killed; None: never."""
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_set(self) -> bool:
        return self.reason is not None

    def set(self, reason: StopReason | str, *, grace_s: float | None = DEFAULT_CANCEL_GRACE_S) -> bool:
        """Tells the handler to end. Returns whether this call changed the reason or the grace."""
        reason = StopReason(reason)
        with self._lock:
            is_first = self.reason is None
            changes_reason = is_first or (reason is StopReason.LOST and self.reason is not StopReason.LOST)
            shortens = is_first or _bound(grace_s) < _bound(self.grace_s)
            if changes_reason:
                self.reason = reason
            if shortens:
                self.grace_s = grace_s
            if not (changes_reason or shortens):
                return False
            callbacks = list(self._callbacks)
            if self._waited_for is not None:
                self._waited_for.set()
        for callback in callbacks:
            try:
                callback()
            except Exception:  # the others must hear of it all the same
                logging.getLogger(__name__).exception("A handler could not be told to end.")
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Blocks the calling thread until the signal is set, or the time is over; whether it is set."""
        with self._lock:
            if self.reason is not None:
                return True
            if self._waited_for is None:
                self._waited_for = threading.Event()
            waited_for = self._waited_for
        return waited_for.wait(timeout_s)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls `callback` from the setter's thread at every change, and at once if already set.

        The callback must be quick and must not raise: from a task use `loop.call_soon_threadsafe`. Returns
        what ends the subscription.
        """
        with self._lock:
            self._callbacks.append(callback)
            is_set = self.is_set
        if is_set:
            callback()

        def unsubscribe() -> None:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return unsubscribe

    def verdict(self, outcome: Outcome) -> Outcome:
        """The outcome that a handler's own ending counts as; the handler may have been told to end.

        A real success counts after `cancelled` and `interrupted`: whether a cancel or the success came first
        is the store's to decide. After `timeout` and `lost` no ending is a success.
        """
        reason = self.reason
        if reason is None:
            return outcome
        is_final = reason in (StopReason.TIMEOUT, StopReason.LOST)
        if outcome.status is not RunStatus.FAILED and not is_final:
            return outcome
        sentence = _SENTENCES[reason]
        if outcome.status is RunStatus.FAILED:
            has_obeyed = not outcome.error or outcome.error.startswith(_OBEYED)
            sentence = f"{sentence}." if has_obeyed else f"{sentence}; it ended with: {outcome.error}"
        else:
            sentence = f"{sentence}; what it returned afterwards does not count."
        ended = Outcome.failed(reason.error_kind, sentence, exit_code=outcome.exit_code)
        ended.is_preempted = reason is StopReason.PREEMPTED
        return ended


def _bound(grace_s: float | None) -> float:
    return math.inf if grace_s is None else grace_s
