"""Work: one call of a verb on its way to a store's threads, and how its caller gets the answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdbeat.store.single_insert import SingleInsert, UniformInsert
from holdbeat.store.transaction import Row, Transaction

if TYPE_CHECKING:
    # Loaded only where there is an event loop: a command that reads a store need not wait for this import.
    import asyncio

T = TypeVar("T")
A = TypeVar("A")


class Coalesced(Generic[A, T]):
    """A verb whose waiting calls are executed together: one call for many, each with its own result or error.

    `many(tx, batches)` must decide about every batch before it writes, so that a refused batch leaves no trace.
    With `batches_behind`, a call waits for the next transaction instead of starting one beside another of its kind.
    `alone(tx, batch)` says what a single call would store, if that is a single job and nothing has to be read for it;
    `uniform(tx, batches)` says it for several calls whose jobs differ in their params alone.
    """

    def __init__(
        self,
        many: Callable[[Transaction, list[A]], list[T | Exception]],
        *,
        batches_behind: bool = False,
        alone: Callable[[Transaction, A], SingleInsert[T] | None] | None = None,
        uniform: Callable[[Transaction, list[A]], UniformInsert[T] | None] | None = None,
    ) -> None:
        self.many = many
        self.alone = alone
        self.uniform = uniform
        self.batches_behind = batches_behind
        self.__doc__ = many.__doc__
        self.__name__ = many.__name__

    def __call__(self, tx: Transaction, batch: A) -> T:
        result = self.many(tx, [batch])[0]
        if isinstance(result, Exception):
            raise result
        return result


class CoalescedInsert(Coalesced[A, T]):
    """A Coalesced verb that writes nothing but the rows of one `INSERT` (`Transaction.insert_from`), one for each call.

    The statement may be run again after a lost answer. So where it is the only one, an engine need not open and close a
    transaction around it. `refused(tx, calls)` answers the calls if some have not inserted their row.
    """

    def __init__(
        self,
        sql: str,
        row_of: Callable[[A], Row],
        answer: Callable[[A], T],
        refused: Callable[[Transaction, list[A]], list[T | Exception]],
        lock_order: Callable[[A], str],
    ) -> None:
        super().__init__(self._insert, batches_behind=True)
        self.sql = sql
        self._row_of = row_of
        self._lock_order = lock_order
        """The sort key of rows: the statement locks the rows that they refer to in this order."""
        self.answer = answer
        """The result of a call that has inserted its row."""
        self._refused = refused

    def rows(self, calls: list[A]) -> list[Row]:
        """The rows of these calls, in the order in which they are to be inserted."""
        ordered = calls if len(calls) == 1 else sorted(calls, key=self._lock_order)
        return [self._row_of(call) for call in ordered]

    def _insert(self, tx: Transaction, calls: list[A]) -> list[T | Exception]:
        if tx.insert_from(self.sql, self.rows(calls), now=tx.now) == len(calls):
            return [self.answer(call) for call in calls]
        return self._refused(tx, calls)


class Work:
    """One call of a verb, and its caller: a thread (`future`), a task of an event loop (`waiter`), or `on_answer`."""

    __slots__ = ("args", "future", "kwargs", "limit_s", "loop", "on_answer", "verb", "waiter")

    def __init__(
        self,
        verb: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        loop: asyncio.AbstractEventLoop | None = None,
        on_answer: Callable[[Any], None] | None = None,
    ) -> None:
        self.verb = verb
        self.args = args
        self.kwargs = kwargs
        self.loop = loop
        self.limit_s: float | None = None
        """A read of a client is stopped after this long; None for calls of the server itself."""
        self.waiter: asyncio.Future[Any] | None = None
        self.future: Future[Any] | None = None
        self.on_answer = on_answer
        """Called with the result or error, in the thread that has it."""
        if loop is not None:
            self.waiter = loop.create_future()
        elif on_answer is None:
            self.future = Future()

    def begin(self) -> bool:
        """Whether the caller still waits; a call whose caller has given up is not executed."""
        if self.future is not None:
            return self.future.set_running_or_notify_cancel()
        return self.waiter is None or not self.waiter.cancelled()

    def run(self, tx: Transaction) -> Any:
        return self.verb(tx, *self.args, **self.kwargs)


def reply(answers: Iterable[tuple[Work, Any]]) -> None:
    """Sets the result or error of each call. An event loop is woken once, however many of its tasks wait."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for work, result in answers:
        if work.on_answer is not None:
            work.on_answer(result)
        elif work.loop is not None and work.waiter is not None:
            loops.setdefault(work.loop, []).append((work.waiter, result))
        elif work.future is None or work.future.done():
            continue
        elif isinstance(result, Exception):
            work.future.set_exception(result)
        else:
            work.future.set_result(result)
    for loop, waiters in loops.items():
        # No task of a closed loop waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(set_results, waiters)


def set_results(waiters: Iterable[tuple[asyncio.Future[Any] | None, Any]]) -> None:
    """Sets the result or error of each task that still waits, in its loop."""
    for waiter, result in waiters:
        if waiter is None or waiter.done():
            continue
        if isinstance(result, Exception):
            waiter.set_exception(result)
        else:
            waiter.set_result(result)
