"""PersistenceAdapter: what a Store promises, whichever engine is underneath.

- A verb runs in one transaction. When `write` returns, it is on disk; when it raises, nothing of it is.
- Verbs that wait at the same time may share one commit, but one's failure does not fail another.
- Topics that a verb names (`tx.wake`) reach the listeners after the commit, in this process and in others; that a new
  job is ready may reach them just before it. Wake-ups are a hint: every subscriber also polls.
- A store belongs to the process that opened it: see `forks`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence, Set
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from holdbeat.domain.clock import Clock
from holdbeat.domain.errors import Conflict, Invalid, StoreBusy
from holdbeat.store.event_lines import log_events
from holdbeat.store.forks import watch_forks
from holdbeat.store.loop_inserts import LoopInserts
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, StoreTerms, Transaction
from holdbeat.store.work import Coalesced, CoalescedInsert, Work

if TYPE_CHECKING:
    # Loaded only where there is an event loop: a command that reads a store need not wait for these imports.
    import asyncio

    from holdbeat.store.loop_calls import LoopCalls

log = logging.getLogger("holdbeat.store")

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")

Listener = Callable[[frozenset[str]], None]
CommitListener = Callable[[Sequence[Row]], None]
Timer = Callable[[str, float], None]


def read_took_too_long(limit_s: float) -> StoreBusy:
    """The refusal of a client's read that was stopped."""
    return StoreBusy(
        f"This read was stopped after {limit_s:g} s. Narrow the filter: add a status, a type, a schedule_id or a "
        "group_id, or ask for fewer rows with limit. If that takes as long, look for what loads the database or holds "
        "locks in it.",
        code="read_too_long",
    )


class PersistenceAdapter(ABC):
    """The Store."""

    url: str
    clock: Clock
    """The clock that decides due-ness and leases: the database's own where there is one."""
    terms: StoreTerms
    calls_of_commit: int = 32
    """This many calls of one event loop are enough for a commit: they do not wait for more."""
    calls_wait_for_loop: bool = False
    """Whether they wait until their event loop has nothing else to do (`LoopCalls.waits_for_loop`)."""
    writers_at_once: int = 1
    """How many transactions of one process can be written side by side."""
    reconnect_s: float = 0.0
    """How long a call waits for a database that is away; less while a process shuts down."""
    client_read_limit_s: float = 5.0
    """How long one read of a client may take."""
    faults_of_data: tuple[type[Exception], ...] = (
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
        Invalid,
        Conflict,
    )
    """Errors that come from what was to be stored, and will come again; any other may pass."""

    def __init__(self) -> None:
        watch_forks(self)
        self._listeners: list[Listener] = []
        self._commit_listeners: list[CommitListener] = []
        self._of_thread = threading.local()
        self.timer: Timer | None = None
        """Told how long each call took its caller: `write` or `read`, and the seconds."""
        self._inserts: LoopInserts[Any, Any] | None = None
        """Of the event loop that inserts rows."""
        self._inserts_lock = threading.Lock()

    @property
    def is_pooled(self) -> bool:
        """Whether a connection pooler is between this process and the database."""
        return False

    # --- running verbs -----------------------------------------------------------------------------------

    @abstractmethod
    def submit(self, work: Work, *, read_only: bool) -> None:
        """Hands a call to the engine, which answers once the result is durable."""

    def submit_together(self, works: list[Work]) -> None:
        """`submit` for writes that may share a transaction."""
        for work in works:
            self.submit(work, read_only=False)

    def submit_beat(self, work: Work) -> None:
        """`submit` for a heartbeat, which waits for no other call where the engine has several connections."""
        self.submit(work, read_only=False)

    def write_here(self, work: Work) -> bool:
        """Runs a write in the caller's own thread, which would only wait for it; False if it has to be submitted."""
        return False

    def _start(self, work: Work, *, read_only: bool) -> Coroutine[Any, Any, Any]:
        began = self.clock.monotonic() if self.timer is not None else 0.0
        self.submit(work, read_only=read_only)
        return self._answer_of(work, began, "read" if read_only else "write")

    async def _answer_of(self, work: Work, began: float, kind: str) -> Any:
        assert work.waiter is not None
        try:
            return await work.waiter
        finally:
            if self.timer is not None:
                self.timer(kind, self.clock.monotonic() - began)

    def loop_calls(self, loop: asyncio.AbstractEventLoop) -> LoopCalls:
        """The writes that the tasks of this thread's event loop share."""
        calls: LoopCalls | None = getattr(self._of_thread, "calls", None)
        if calls is None or calls.loop is not loop:
            from holdbeat.store.loop_calls import LoopCalls

            calls = self._of_thread.calls = LoopCalls(loop, self.submit_together, self.calls_of_commit)
            if self.calls_wait_for_loop:
                calls.waits_for_loop, calls.halved_from = True, None
        return calls

    async def _write_together(self, work: Work, loop: asyncio.AbstractEventLoop) -> Any:
        began = self.clock.monotonic() if self.timer is not None else 0.0
        calls = self.loop_calls(loop)
        calls.put(work)
        assert work.waiter is not None
        try:
            return await work.waiter
        finally:
            if work.waiter.cancelled():
                calls.give_up(work)
            else:
                calls.answered()
            if self.timer is not None:
                self.timer("write", self.clock.monotonic() - began)

    async def write(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a verb in a transaction of its own and returns once it is on disk."""
        import asyncio

        loop = asyncio.get_running_loop()
        if isinstance(verb, CoalescedInsert):
            row: T = await self.insert(loop, verb, args[0])
            return row
        work = Work(verb, args, kwargs, loop)
        result: T
        if isinstance(verb, Coalesced) and verb.batches_behind:
            result = await self._write_together(work, loop)
        else:
            result = await self._start(work, read_only=False)
        return result

    def insert(self, loop: asyncio.AbstractEventLoop, verb: CoalescedInsert[A, T], call: A) -> Awaitable[T]:
        """`write` of a row by a task of this loop: rows of tasks that insert at the same time go together."""
        inserts = self._inserts
        if inserts is None or inserts.loop is not loop or inserts.verb is not verb:
            inserts = self._inserts_of(loop, verb)
        work = Work(verb, (call,), {}, loop)
        if inserts is None:
            return self._start(work, read_only=False)
        began = self.clock.monotonic() if self.timer is not None else 0.0
        inserts.put(work)
        assert work.waiter is not None
        return work.waiter if self.timer is None else self._answer_of(work, began, "write")

    def _inserts_of(self, loop: asyncio.AbstractEventLoop, verb: CoalescedInsert[A, T]) -> LoopInserts[A, T] | None:
        """None while another loop has them."""
        with self._inserts_lock:
            if self._inserts is not None:
                if not self._inserts.loop.is_closed():
                    return None
                self._inserts.close()
            self._inserts = self._make_inserts(loop, verb)
            return self._inserts

    def _make_inserts(self, loop: asyncio.AbstractEventLoop, verb: CoalescedInsert[A, T]) -> LoopInserts[A, T] | None:
        """None where each call goes on its own."""
        return None

    def _close_inserts(self) -> None:
        with self._inserts_lock:
            if self._inserts is not None:
                self._inserts.close()
                self._inserts = None

    def start_write(
        self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]:
        """`write` that hands the call to the engine now; the result is awaited later."""
        import asyncio

        return self._start(Work(verb, args, kwargs, asyncio.get_running_loop()), read_only=False)

    async def read(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a verb that only reads, on a snapshot of its own, beside the writers.

        For reads of the server itself (keys, readiness, the engine): no client's read delays them.
        """
        import asyncio

        result: T = await self._start(Work(verb, args, kwargs, asyncio.get_running_loop()), read_only=True)
        return result

    async def read_for_client(
        self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`read` whose extent a client decides: it uses connections of its own and has a time limit (SEC-08)."""
        import asyncio

        work = Work(verb, args, kwargs, asyncio.get_running_loop())
        work.limit_s = self.client_read_limit_s
        result: T = await self._start(work, read_only=True)
        return result

    def write_sync(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`write` for threads and scripts without an event loop."""
        answers: list[Any] = []
        if self.write_here(Work(verb, args, kwargs, on_answer=answers.append)):
            if isinstance(answers[0], Exception):
                raise answers[0]
            own: T = answers[0]
            return own
        work = Work(verb, args, kwargs)
        self.submit(work, read_only=False)
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

    def for_thread(self, connection: Any, loop: asyncio.AbstractEventLoop) -> Any:
        """A caller's connection in a form for `joined` in another thread, where only its event loop may use it."""
        return connection

    def write_joined(
        self,
        connection: Any,
        verb: Callable[Concatenate[Transaction, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Runs a verb in the caller's open transaction: what it writes exists if and when the caller commits."""
        tx = self.joined(connection)
        result = verb(tx, *args, **kwargs)
        tx.write_events()
        return result

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

    def on_topics(
        self, loop: asyncio.AbstractEventLoop, topics: Set[Topic], callback: Callable[[], object]
    ) -> Callable[[], None]:
        """Calls `callback` in the loop after each commit with one of these topics, and after a reconnect.

        Returns how to stop it.
        """
        awaited = frozenset(topics) | {Topic.RECONNECTED}

        def listener(committed: frozenset[str]) -> None:
            if committed & awaited:
                # No task of a closed loop waits any more.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(callback)

        return self.listen(listener)

    def tell(self, topics: frozenset[str]) -> None:
        """Calls the listeners of this process."""
        for listener in list(self._listeners):
            listener(topics)

    # --- what was committed ------------------------------------------------------------------------------

    def on_commit(self, listener: CommitListener) -> None:
        """Calls `listener` with the Events (rows of EVENT_COLUMNS) of each commit of this process, from any thread.

        What a caller commits in a transaction of its own (`joined`) is not seen.
        """
        self._commit_listeners.append(listener)

    def report_commit(self, committed: Sequence[Row]) -> None:
        """Passes Events that are on disk now to the log and the listeners."""
        try:
            log_events(committed)
            for listener in self._commit_listeners:
                listener(committed)
        except Exception:
            log.exception("events were stored, but a log handler or a listener failed")

    # --- forks -------------------------------------------------------------------------------------------

    def before_fork(self) -> None:  # noqa: B027
        """See forks.Forkable."""

    def after_fork_in_parent(self) -> None:  # noqa: B027
        """See forks.Forkable."""

    def after_fork_in_child(self) -> None:
        """See forks.Forkable."""
        # Not closed: for the kernel, the child's copy of the event loop is the same as the parent's.
        self._inserts, self._inserts_lock = None, threading.Lock()

    # --- life --------------------------------------------------------------------------------------------

    @abstractmethod
    def close(self) -> None:
        """Ends all threads and connections after the work at hand."""

    def announce_alive(self, worker_id: str) -> None:  # noqa: B027
        """Begins to show that this worker's process lives, where its row alone does not (LEASE-05)."""

    def withdraw_alive(self, worker_id: str, *, is_stopped: bool = True) -> None:  # noqa: B027
        """Ends what `announce_alive` began. If the worker has not stopped in order, others find it dead at once."""

    def log_bytes(self) -> int | None:
        """The size of the store's write-ahead log, where it has one of its own."""
        return None

    @abstractmethod
    def known_dead(self) -> frozenset[str]:
        """All workers that did not stop in order and whose processes are known to be gone."""

    async def find_dead(self) -> frozenset[str]:
        """`known_dead` in an event loop, which must not wait for a database."""
        return self.known_dead()
