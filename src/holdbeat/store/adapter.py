"""PersistenceAdapter: what a Store promises, whichever engine is underneath.

- A verb runs in one transaction. When `write` returns, it is on disk; when it raises, nothing of it is.
- Verbs that wait at the same time may share one commit, but never each other's failure.
- What a verb woke (`tx.wake`) is told after the commit, in this process and in others. Wake-ups are a hint:
  whoever waits for something also looks from time to time.
- A store belongs to the process that opened it. A fork waits until it rests, and the child's copy refuses everything.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from holdbeat.domain.clock import Clock
from holdbeat.domain.errors import Conflict, Invalid, StoreRefused
from holdbeat.store.event_lines import log_events
from holdbeat.store.transaction import Row, StoreTerms, Transaction

if TYPE_CHECKING:
    # Loaded by those who have an event loop: a command that reads a store need not wait for it.
    import asyncio

log = logging.getLogger("holdbeat.store")

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")

Listener = Callable[[frozenset[str]], None]
Witness = Callable[[Sequence[Row]], None]
Timer = Callable[[str, float], None]


class Coalesced(Generic[A, T]):
    """A verb whose waiting calls are done together: one call for many, each with its own result or error.

    `many(tx, batches)` must decide about every batch before it writes, so that a refused one leaves no trace.
    One that `batches_behind` would rather go with the next transaction than begin one beside another of its kind.
    """

    def __init__(
        self, many: Callable[[Transaction, list[A]], list[T | Exception]], *, batches_behind: bool = False
    ) -> None:
        self.many = many
        self.batches_behind = batches_behind
        self.__doc__ = many.__doc__
        self.__name__ = many.__name__

    def __call__(self, tx: Transaction, batch: A) -> T:
        result = self.many(tx, [batch])[0]
        if isinstance(result, Exception):
            raise result
        return result


class Work:
    """One call of a verb on its way to the engine, and who waits for it: a thread, or a task of an event loop."""

    __slots__ = ("args", "future", "given_up", "kwargs", "loop", "verb", "waiter")

    def __init__(
        self,
        verb: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.verb = verb
        self.args = args
        self.kwargs = kwargs
        self.loop = loop
        self.given_up = False
        self.waiter: asyncio.Future[Any] | None = None
        self.future: Future[Any] | None = None
        if loop is not None:
            self.waiter = loop.create_future()
        else:
            self.future = Future()

    def begin(self) -> bool:
        """Whether somebody still waits for it; one that nobody waits for is not begun."""
        return not self.given_up if self.future is None else self.future.set_running_or_notify_cancel()

    def run(self, tx: Transaction) -> Any:
        return self.verb(tx, *self.args, **self.kwargs)


def reply(answers: Iterable[tuple[Work, Any]]) -> None:
    """Gives everyone who waits a result or an error. Each event loop is woken once, however many wait there."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for work, result in answers:
        if work.loop is not None and work.waiter is not None:
            loops.setdefault(work.loop, []).append((work.waiter, result))
        elif work.future is None or work.future.done():
            continue
        elif isinstance(result, Exception):
            work.future.set_exception(result)
        else:
            work.future.set_result(result)
    for loop, waiters in loops.items():
        # A loop that was closed has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_wake, waiters)


def _wake(waiters: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for waiter, result in waiters:
        if waiter.done():
            continue
        if isinstance(result, Exception):
            waiter.set_exception(result)
        else:
            waiter.set_result(result)


class PersistenceAdapter(ABC):
    """The Store."""

    url: str
    clock: Clock
    """The clock that decides due-ness and leases: the database's own where there is one."""
    terms: StoreTerms
    writers_at_once: int = 1
    """How many transactions of one process can be written side by side."""
    patience_s: float = 0.0
    """How long a call waits for a database that is away; less while a process shuts down."""
    faults_of_data: tuple[type[Exception], ...] = (
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
        Invalid,
        Conflict,
    )
    """Errors that come from what was to be stored, and will come again; any other may pass."""
    is_inherited: bool = False
    """Whether this is a forked child's copy of a store that its parent opened."""

    def __init__(self) -> None:
        _OPENED[id(self)] = self
        self._listeners: list[Listener] = []
        self._witnesses: list[Witness] = []
        self.timer: Timer | None = None
        """Told how long each call took its caller: `write` or `read`, and the seconds."""

    # --- running verbs -----------------------------------------------------------------------------------

    @abstractmethod
    def submit(self, work: Work, *, read_only: bool) -> None:
        """Hands a call to the engine, which answers once the result is durable."""

    def write_waiting(self, work: Work) -> None:
        """`submit` for a write whose caller does nothing else until it is answered."""
        self.submit(work, read_only=False)

    async def _wait_for(self, work: Work, *, read_only: bool) -> Any:
        import asyncio

        timer = self.timer
        began = self.clock.monotonic() if timer is not None else 0.0
        self.submit(work, read_only=read_only)
        assert work.waiter is not None
        try:
            return await work.waiter
        except asyncio.CancelledError:
            work.given_up = True
            raise
        finally:
            if timer is not None:
                timer("read" if read_only else "write", self.clock.monotonic() - began)

    async def write(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a verb in a transaction of its own and returns once it is on disk."""
        import asyncio

        result: T = await self._wait_for(Work(verb, args, kwargs, asyncio.get_running_loop()), read_only=False)
        return result

    async def read(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a verb that only reads, on a snapshot of its own, beside the writers."""
        import asyncio

        result: T = await self._wait_for(Work(verb, args, kwargs, asyncio.get_running_loop()), read_only=True)
        return result

    def write_sync(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`write` for threads and scripts without an event loop."""
        work = Work(verb, args, kwargs)
        self.write_waiting(work)
        assert work.future is not None
        result: T = work.future.result()
        return result

    def read_sync(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`read` for threads and scripts without an event loop."""
        work = Work(verb, args, kwargs)
        self.submit(work, read_only=True)
        assert work.future is not None
        result: T = work.future.result()
        return result

    @abstractmethod
    def joined(self, connection: Any) -> Transaction:
        """A transaction over the caller's own open one: what verbs write there lives or dies with it (QUE-03).

        The caller commits; `write_events` of the transaction must be called before that, so that Events are stored too.
        """

    @abstractmethod
    def connection(self) -> contextlib.AbstractContextManager[Any]:
        """A connection with an open transaction, for tables of the caller's own beside ours and for `joined`.

        Committed when the block ends, rolled back if it ends with an exception, closed in either case.
        """

    # --- wake-ups ----------------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` with the topics of each commit, from any thread. Returns how to stop it."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def tell(self, topics: frozenset[str]) -> None:
        """Tells the listeners of this process."""
        for listener in list(self._listeners):
            listener(topics)

    # --- what was committed ------------------------------------------------------------------------------

    def witness(self, witness: Witness) -> None:
        """Calls `witness` with the Events (rows of EVENT_COLUMNS) of each commit of this process, from any thread.

        What a caller commits in a transaction of its own (`joined`) is not seen.
        """
        self._witnesses.append(witness)

    def witnessed(self, committed: Sequence[Row]) -> None:
        """Tells the log and the witnesses of Events that are on disk now."""
        try:
            log_events(committed)
            for witness in self._witnesses:
                witness(committed)
        except Exception:
            log.exception("events were stored, but could not be told")

    # --- forks -------------------------------------------------------------------------------------------

    def hold_still(self) -> None:  # noqa: B027
        """Lets the work at hand end before a fork, so that the child inherits nothing half done."""

    def move_on(self) -> None:  # noqa: B027
        """Ends what `hold_still` began, in the parent."""

    def disown(self) -> None:
        """In a forked child: the store stays the parent's. Its threads are not here, and its connections not ours."""
        self.is_inherited = True

    # --- life --------------------------------------------------------------------------------------------

    @abstractmethod
    def close(self) -> None:
        """Ends all threads and connections after the work at hand."""

    @abstractmethod
    def announce_alive(self, worker_id: str) -> None:
        """Begins to show that this worker's process lives, where the engine can tell (LEASE-05)."""

    @abstractmethod
    def withdraw_alive(self, worker_id: str) -> None:
        """Ends what `announce_alive` began."""

    @abstractmethod
    def is_known_dead(self, worker_id: str) -> bool:
        """Whether the worker's process is certainly gone. False means only that nobody can tell."""

    def log_bytes(self) -> int | None:
        """The size of the store's write-ahead log, where it has one of its own."""
        return None

    def log_trouble(self) -> str | None:
        """What is wrong with that log, and what to do; None if nothing is."""
        return None

    @abstractmethod
    def known_dead(self) -> frozenset[str]:
        """All workers that announced themselves, did not withdraw, and whose processes are certainly gone."""


def forked() -> StoreRefused:
    """What a forked child hears from a store that its parent opened."""
    return StoreRefused(
        "This store was opened before the process forked, and belongs to the parent. Open it anew in the child: an App "
        "does so by itself, a JobHandle does not.",
        code="store_forked",
    )


_OPENED: weakref.WeakValueDictionary[int, PersistenceAdapter] = weakref.WeakValueDictionary()
_forking = threading.local()


def _before_fork() -> None:
    _forking.stores = [store for store in (known() for known in _OPENED.valuerefs()) if store is not None]
    for store in _forking.stores:
        store.hold_still()


def _after_fork_in_parent() -> None:
    for store in _forking.stores:
        store.move_on()
    _forking.stores = []


def _after_fork_in_child() -> None:
    for store in _forking.stores:
        store.disown()
    _forking.stores = []


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
