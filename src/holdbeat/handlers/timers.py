"""Calls at a later time from a thread of their own, which neither the event loop nor the store can hold up."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable

from holdbeat.domain.clock import SystemClock

monotonic = SystemClock().monotonic


class Timer:
    """One call to come. `at` is on the monotonic clock."""

    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Timers:
    """Calls in the order of their times. The thread starts with the first call and ends when none is left."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._is_running = False

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(at, callback)
        with self._changed:
            heapq.heappush(self._calls, (at, next(self._numbers), timer))
            if not self._is_running:
                threading.Thread(target=self._run, name="holdbeat-timers", daemon=True).start()
                self._is_running = True
            self._changed.notify()
        return timer

    def _run(self) -> None:
        while (timer := self._next()) is not None:
            try:
                timer.callback()
            except Exception:
                logging.getLogger(__name__).exception("A timed call failed.")

    def _next(self) -> Timer | None:
        """Waits until the next call is due; None, and the end of the thread, if there is none."""
        with self._changed:
            while self._calls:
                at, _, timer = self._calls[0]
                if timer.is_cancelled:
                    heapq.heappop(self._calls)
                elif (wait_s := at - monotonic()) > 0:
                    self._changed.wait(wait_s)
                else:
                    heapq.heappop(self._calls)
                    return timer
            self._is_running = False
            return None
