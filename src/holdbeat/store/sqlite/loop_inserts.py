"""Rows that tasks of an event loop insert into a SQLite file: the thread that writes answers through a pipe."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from holdbeat.store.loop_inserts import A, LoopInserts, T
from holdbeat.store.sqlite.write_queue import WakePipe
from holdbeat.store.work import CoalescedInsert, Work

if TYPE_CHECKING:
    import asyncio

    from holdbeat.store.adapter import PersistenceAdapter


class SqliteLoopInserts(LoopInserts[A, T]):
    """One batch after the other: the thread that writes would commit two of them one by one."""

    hold_s = None
    halved_from = None

    def __init__(self, store: PersistenceAdapter, loop: asyncio.AbstractEventLoop, verb: CoalescedInsert[A, T]) -> None:
        super().__init__(store, loop, verb)
        self._answered: deque[tuple[list[Work], Any]] = deque()
        self._pipe = WakePipe()
        self._closing = threading.Lock()
        """Locked while the writer thread uses the pipe: a loop may be closed before its calls are answered."""
        self._is_closed = False
        loop.add_reader(self._pipe.reader, self._take_answers)

    def _begin(self, works: list[Work]) -> None:
        may_wait = self._may_wait(works)
        calls = [work.args[0] for work in works]
        verb, argument = (self.verb, calls[0]) if len(calls) == 1 else (self.verb.many, calls)
        self.store.submit(Work(verb, (argument,), {}, on_answer=partial(self._put_answer, works)), read_only=False)
        if may_wait and self._idle_loop.poll(self._pipe.reader):
            self._take_answers()

    def _put_answer(self, works: list[Work], result: Any) -> None:
        self._answered.append((works, result))
        with self._closing:
            if not self._is_closed:
                self._pipe.wake()

    def _take_answers(self) -> None:
        self._pipe.wait()
        self._take()

    def _take(self) -> None:
        while self._answered:
            works, result = self._answered.popleft()
            is_list = len(works) > 1 or isinstance(result, Exception)
            self._answer(works, result if is_list else [result])

    def close(self) -> None:
        if self.loop.is_closed():
            self._close_pipe()
            return
        import asyncio

        try:
            is_here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            is_here = False
        if is_here or not self.loop.is_running():
            self._end()
        else:
            self.loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._take()
        self.loop.remove_reader(self._pipe.reader)
        self._close_pipe()

    def _close_pipe(self) -> None:
        with self._closing:
            self._is_closed = True
            self._pipe.close()
