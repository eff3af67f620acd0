"""WriteQueue: what waits for the thread that writes.

A pipe wakes that thread. The kernel knows that who writes to a pipe often sleeps next, and then lets both share a
processor; a lock wakes another processor, which takes longer than most of what is to be written.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence

from holdbeat.store.work import Work

BATCH_POLLS, BATCH_POLL_S = 5, 0.0001
"""Group commit: the writer polls so often and so long until as many writes are queued as in the last batch. A commit
costs the same for one write as for thirty."""


class WakePipe:
    """Wakes the reader of a pipe. The pipe never fills up, because only a waiting reader is woken."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()

    def wake(self) -> None:
        os.write(self._writer, b"\0")

    def wait(self) -> None:
        """Waits for a wake-up; may return without one."""
        os.read(self.reader, 4096)

    def close(self) -> None:
        os.close(self.reader)
        os.close(self._writer)


class WriteQueue:
    """Any thread puts, one takes."""

    def __init__(self) -> None:
        self._waiting: deque[Work | None] = deque()
        self._pipe = WakePipe()
        self._is_asleep = False
        """Whether the taker waits, or is about to."""
        self.close = self._pipe.close

    def put(self, work: Work | None) -> None:
        self.put_all([work])

    def put_all(self, works: Sequence[Work | None]) -> None:
        self._waiting.extend(works)
        if self._is_asleep:
            self._is_asleep = False
            self._pipe.wake()

    def __len__(self) -> int:
        return len(self._waiting)

    def get(self) -> Work | None:
        """The next one, once there is one."""
        while not self._waiting:
            self._is_asleep = True
            # A thread that puts after this check sees that it must wake us.
            if not self._waiting:
                self._pipe.wait()
            self._is_asleep = False
        return self._waiting.popleft()

    def get_together(self, expected: int, most: int) -> list[Work | None]:
        """The next ones, once there is one. Waits a moment if fewer are there than are expected."""
        first = self.get()
        for _ in range(BATCH_POLLS):
            if len(self) + 1 >= expected:
                break
            time.sleep(BATCH_POLL_S)
        return [first, *(self._waiting.popleft() for _ in range(min(most - 1, len(self))))]
