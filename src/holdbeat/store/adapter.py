"""PersistenceAdapter: what a Store promises, whichever engine is underneath.

- A verb runs in one transaction. When `write` returns, it is on disk; when it raises, nothing of it is.
- Verbs that wait at the same time may share one commit, but never each other's failure.
- What a verb woke (`tx.wake`) is told after the commit, in this process and in others. Wake-ups are a hint:
  whoever waits for something also looks from time to time.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from holdbeat.domain.clock import Clock
from holdbeat.store.transaction import StoreTerms, Transaction

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")

Unit = Callable[[Transaction], Any]
Listener = Callable[[frozenset[str]], None]


class Coalesced(Generic[A, T]):
    """A verb whose waiting calls are done together: one call for many, each with its own result or error.

    `many(tx, batches)` must decide about every batch before it writes, so that a refused one leaves no trace.
    """

    def __init__(self, many: Callable[[Transaction, list[A]], list[T | Exception]]) -> None:
        self.many = many
        self.__doc__ = many.__doc__
        self.__name__ = many.__name__

    def __call__(self, tx: Transaction, batch: A) -> T:
        result = self.many(tx, [batch])[0]
        if isinstance(result, Exception):
            raise result
        return result


class Work:
    """One call of a verb on its way to the engine."""

    __slots__ = ("args", "future", "kwargs", "verb")

    def __init__(self, verb: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.verb = verb
        self.args = args
        self.kwargs = kwargs
        self.future: Future[Any] = Future()

    def run(self, tx: Transaction) -> Any:
        return self.verb(tx, *self.args, **self.kwargs)


class PersistenceAdapter(ABC):
    """The Store."""

    url: str
    clock: Clock
    """The clock that decides due-ness and leases: the database's own where there is one."""
    terms: StoreTerms

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    # --- running verbs -----------------------------------------------------------------------------------

    @abstractmethod
    def submit(self, work: Work, *, read_only: bool) -> None:
        """Hands a call to the engine; its future ends once the result is durable."""

    async def write(
        self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs a verb in a transaction of its own and returns once it is on disk."""
        work = Work(verb, args, kwargs)
        self.submit(work, read_only=False)
        result: T = await asyncio.wrap_future(work.future)
        return result

    async def read(
        self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs a verb that only reads, on a snapshot of its own, beside the writers."""
        work = Work(verb, args, kwargs)
        self.submit(work, read_only=True)
        result: T = await asyncio.wrap_future(work.future)
        return result

    def write_sync(
        self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`write` for threads and scripts without an event loop."""
        work = Work(verb, args, kwargs)
        self.submit(work, read_only=False)
        result: T = work.future.result()
        return result

    def read_sync(
        self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`read` for threads and scripts without an event loop."""
        work = Work(verb, args, kwargs)
        self.submit(work, read_only=True)
        result: T = work.future.result()
        return result

    @abstractmethod
    def joined(self, connection: Any) -> Transaction:
        """A transaction over the caller's own open one: what verbs write there lives or dies with it (QUE-03).

        The caller commits; `finish_joined` must be called before that, so that Events are written too.
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

    @abstractmethod
    def known_dead(self) -> frozenset[str]:
        """All workers that announced themselves, did not withdraw, and whose processes are certainly gone."""
