"""The calls that wait for a connection to PostgreSQL, and which of them go together.

Guards the price of a commit: a few large transactions cost the interpreter less than many small ones, by a tenth of
all that a submitted job costs over HTTP. So calls of a verb with `batches_behind` wait for the end of the transaction
of their kind that is under way, and then share one; but not for long, because one stuck behind a lock must not hold up
the others.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from holdbeat.store.work import Coalesced, Work

SHARED_COMMIT_MAX = 512
BATCH_WAIT_S = 0.02
"""How long such a call waits for a transaction of its verb to end, before it begins one of its own."""


class Calls:
    """The queue of waiting calls. A coalesced verb takes all its waiting calls with it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: deque[Work] = deque()
        self._lock = threading.Lock()
        self._idle: list[threading.Condition] = []
        """Of each thread that waits for a call. The last one is woken first: what it and its session of the server need
        is still in their caches."""
        self._closed = False
        self._begun: dict[Any, dict[Work, float]] = {}
        """Of each such verb: when its transactions under way began, the newest last, each under the first
        of its calls."""
        self._is_watched = False
        """Whether a thread waits to begin a transaction beside one of its kind that takes long."""

    def put(self, *works: Work) -> None:
        with self._lock:
            self._waiting += works
            for verb in {work.verb for work in works}:
                # A thread that runs a call of the same verb takes it next: no other thread has to wake up.
                if not (self._is_watched and verb in self._begun):
                    self._wake_one()

    def take(self, finished: Work | None = None) -> list[Work] | None:
        """The next calls, once there are some; None when all is done. `finished` is the first of those taken before."""
        with self._lock:
            if finished is not None:
                self._end(finished)
            while True:
                index, wait_s = self._next()
                if index is not None:
                    return self._taken(index)
                if self._closed:
                    return None
                if wait_s is None or self._is_watched:
                    self._wait(None)
                else:
                    self._is_watched = True
                    self._wait(wait_s)
                    self._is_watched = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            while self._idle:
                self._wake_one()

    def _wait(self, timeout_s: float | None) -> None:
        waiting = threading.Condition(self._lock)
        self._idle.append(waiting)
        waiting.wait(timeout_s)
        if waiting in self._idle:
            self._idle.remove(waiting)

    def _wake_one(self) -> None:
        if self._idle:
            self._idle.pop().notify()

    def _next(self) -> tuple[int | None, float | None]:
        """The place of the first call that may begin; if there is none, how long until one may."""
        if not self._begun or self._closed:
            return (0 if self._waiting else None), None
        now = self._monotonic()
        wait_s = None
        for index, work in enumerate(self._waiting):
            begun = self._begun.get(work.verb)
            if begun is None:
                return index, None
            wait_s = next(reversed(begun.values())) + BATCH_WAIT_S - now
            if wait_s <= 0:
                return index, None
        return None, wait_s

    def _taken(self, index: int) -> list[Work]:
        first = self._waiting[index]
        del self._waiting[index]
        works = [first]
        if not isinstance(first.verb, Coalesced):
            return works
        if self._waiting:
            remaining: deque[Work] = deque()
            for work in self._waiting:
                same = work.verb is first.verb and len(works) < SHARED_COMMIT_MAX
                (works if same else remaining).append(work)
            self._waiting = remaining
        if first.verb.batches_behind:
            self._begun.setdefault(first.verb, {})[first] = self._monotonic()
        return works

    def _end(self, work: Work) -> None:
        begun = self._begun.get(work.verb)
        if begun is not None:
            begun.pop(work, None)
            if not begun:
                del self._begun[work.verb]
