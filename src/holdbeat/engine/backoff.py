"""Backoff: pauses cycles after a failure, for twice as long each time, with jitter."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

FIRST_S = 0.2
LONGEST_S = 5.0


class Backoff:
    """`resume` is called in the event loop when a pause is over."""

    def __init__(self, resume: Callable[[], None]) -> None:
        self._resume = resume
        self._pause_s = 0.0
        self.is_paused = False

    def fail(self) -> None:
        self._pause_s = min(LONGEST_S, max(FIRST_S, self._pause_s * 2))
        if not self.is_paused:
            self.is_paused = True
            asyncio.get_running_loop().call_later(random.uniform(0.5, 1.0) * self._pause_s, self._end_pause)

    def succeed(self) -> None:
        self._pause_s = 0.0

    def _end_pause(self) -> None:
        self.is_paused = False
        self._resume()
