"""SqliteStore: one file, one writer at a time that shares its commits, readers beside it.

Guards DEC-008: nobody is told "stored" before the fsync. All that waits when the writer thread turns to its queue
goes into one transaction, each unit in a savepoint of its own; an idle store commits at once. Whoever holds the write
lock writes: the writer thread, or a thread that would only have waited for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from holdbeat.domain.clock import Clock, SystemClock
from holdbeat.domain.errors import HoldbeatError, StoreRefused
from holdbeat.store.adapter import Listener, PersistenceAdapter
from holdbeat.store.forks import forked
from holdbeat.store.loop_inserts import LoopInserts
from holdbeat.store.migrate import indexes_of
from holdbeat.store.sqlite import file as sqlite_file
from holdbeat.store.sqlite import log_growth
from holdbeat.store.sqlite.batch import Batch, no_transaction, store_closed, write_interrupted_itself
from holdbeat.store.sqlite.errors import BUSY_TIMEOUT_MS, translated, translated_os
from holdbeat.store.sqlite.file import MEMORY, own_transaction
from holdbeat.store.sqlite.loop_inserts import SqliteLoopInserts
from holdbeat.store.sqlite.open_file import OpenFile
from holdbeat.store.sqlite.processes import Wakeups, WorkerLocks, WriteLock
from holdbeat.store.sqlite.read_limit import read_limit
from holdbeat.store.sqlite.transaction import SqliteTransaction
from holdbeat.store.sqlite.write_queue import WriteQueue
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import StoreTerms, Transaction
from holdbeat.store.work import CoalescedInsert, Work, reply

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger("holdbeat.store")
A = TypeVar("A")
T = TypeVar("T")

SHARED_COMMIT_MAX = 512
"""Units of work that share one commit at the most, so that the first of them does not wait for long."""

READERS = 2
"""Readers of the server itself; reads of clients have as many of their own."""
CLOSE_WITHIN_S = 10.0
"""How long a store that is closed waits for its threads: a flush to a disk that stands still does not return."""
FORK_WAIT_S = 15.0
"""How long a fork waits for the work at hand; a write that waits for another process takes longer."""

_left_open: dict[str, SqliteStore] = {}
"""Files with stores that a forked child must not open: what was under way in them at the fork cannot be undone here."""


class SqliteStore(PersistenceAdapter):
    calls_of_commit = 256
    calls_wait_for_loop = True
    faults_of_data = (*PersistenceAdapter.faults_of_data, apsw.TooBigError, apsw.MismatchError)

    def __init__(self, path: str, terms: StoreTerms, *, clock: Clock | None = None, create: bool = True) -> None:
        super().__init__()
        self.path = path if path == MEMORY else os.path.realpath(path)
        if self.path in _left_open:
            raise forked()
        self.url = f"sqlite:///{self.path}"
        self.clock = clock or SystemClock()
        self.terms = terms
        self.refused: HoldbeatError | None = None
        """Why the store must not be used any more, once that is so."""
        self._closed = False
        self._writing = WriteQueue()
        self._reading: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._reading_for_clients: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._write_lock = threading.Lock()
        self._writing_threads: set[int] = set()
        """Threads that hold the write lock or are about to: what interrupts one of them must not wait for it."""
        self._reader_locks = [threading.Lock() for _ in range(2 * READERS)]
        """Each held by its reader while that reads."""
        self._locks_held_for_fork: list[threading.Lock] = []
        self._process_lock: WriteLock | contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        self._worker_locks: WorkerLocks | None = None
        self._wakeups: Wakeups | None = None
        with contextlib.ExitStack() as on_error:
            on_error.callback(self._writing.close)
            self._file = OpenFile(self.path, create=create, readers=len(self._reader_locks), indexes=indexes_of(terms))
            on_error.callback(self._file.close_all)
            if self.path != MEMORY:
                self._open_files_beside(on_error)
            on_error.pop_all()
        self._threads = [threading.Thread(target=self._write_until_closed, name="holdbeat-writer", daemon=True)]
        if self.path != MEMORY:
            self._threads += [
                threading.Thread(target=self._read_loop, args=reader, name=f"holdbeat-reader-{number}", daemon=True)
                for number, reader in enumerate(
                    zip(
                        [self._reading, self._reading_for_clients] * READERS,
                        self._reader_locks,
                        self._file.readers,
                        strict=True,
                    )
                )
            ]
        for thread in self._threads:
            thread.start()

    def _open_files_beside(self, on_error: contextlib.ExitStack) -> None:
        beside = Path(f"{self.path}-run")
        beside.mkdir(mode=0o700, exist_ok=True)
        lock = self._process_lock = WriteLock(beside / "write.lock", BUSY_TIMEOUT_MS / 1000)
        on_error.callback(lock.close)
        self._worker_locks = WorkerLocks(beside / "workers")
        self._wakeups = Wakeups(self.path, self.tell)

    # --- the contract ------------------------------------------------------------------------------------

    def submit(self, work: Work, *, read_only: bool) -> None:
        if self.refused is not None:
            _fail([work], self.refused)
        elif self._closed:
            _fail([work], store_closed())
        elif read_only and self.path != MEMORY:
            (self._reading if work.limit_s is None else self._reading_for_clients).put(work)
        elif work.future is not None and threading.get_ident() in self._writing_threads:
            _fail([work], write_interrupted_itself())
        else:
            self._writing.put(work)

    def submit_together(self, works: list[Work]) -> None:
        if self.refused is not None or self._closed:
            super().submit_together(works)
        else:
            self._writing.put_all(works)

    def _make_inserts(self, loop: asyncio.AbstractEventLoop, verb: CoalescedInsert[A, T]) -> LoopInserts[A, T] | None:
        return None if self._closed else SqliteLoopInserts(self, loop, verb)

    def joined(self, connection: Any) -> Transaction:
        if self.refused is not None:
            raise self.refused
        self._file.check()
        if not isinstance(connection, apsw.Connection) or not connection.in_transaction:
            raise no_transaction()
        return self._transaction(connection, self.clock.now())

    @contextlib.contextmanager
    def connection(self) -> Iterator[apsw.Connection]:
        if self.refused is not None or self._closed:
            raise self.refused or store_closed()
        if self.path == MEMORY:
            raise HoldbeatError(
                "A store in memory has no file for tables of your own. Name a file for the store.", code="no_file"
            )
        self._file.check()
        with own_transaction(self.path) as connection:
            yield connection
        self._wake({Topic.READY, Topic.EVENTS})

    def _transaction(self, connection: apsw.Connection, now: datetime) -> SqliteTransaction:
        tx = SqliteTransaction(connection, now, self.terms)
        tx.known_dead = self.known_dead
        return tx

    def listen(self, listener: Listener) -> Callable[[], None]:
        if self._wakeups is not None:
            self._wakeups.listen()
        return super().listen(listener)

    def announce_alive(self, worker_id: str) -> None:
        if self._worker_locks is not None:
            try:
                self._worker_locks.announce(worker_id)
            except OSError as error:
                raise translated_os(error, self.path) from error

    def withdraw_alive(self, worker_id: str, *, is_stopped: bool = True) -> None:
        if self._worker_locks is not None:
            self._worker_locks.withdraw(worker_id, is_stopped=is_stopped)

    def known_dead(self) -> frozenset[str]:
        return self._worker_locks.known_dead() if self._worker_locks is not None else frozenset()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._writing.put(None)
        for _ in self._threads[1:]:
            self._reading.put(None)
            self._reading_for_clients.put(None)
        self._threads[0].join(CLOSE_WITHIN_S)
        if not self._threads[0].is_alive():
            self._close_inserts()
            return
        log.error(
            "The store %s was not closed within %g s: its disk or another process holds it up. What was reported as "
            "stored is stored; calls that got no answer may not be.", self.path, CLOSE_WITHIN_S,
        )  # fmt: skip

    # --- forks -------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        self._writing_threads.add(threading.get_ident())
        self._locks_held_for_fork = [
            lock for lock in (self._write_lock, *self._reader_locks) if lock.acquire(timeout=FORK_WAIT_S)
        ]

    def after_fork_in_parent(self) -> None:
        locks, self._locks_held_for_fork = self._locks_held_for_fork, []
        for lock in locks:
            lock.release()
        self._writing_threads.discard(threading.get_ident())

    def after_fork_in_child(self) -> None:
        """Closes the connections: while one is open here, SQLite takes the parent's locks for this process's own."""
        super().after_fork_in_child()
        was_closed, self._closed = self._closed, True
        self.refused = forked()
        self._writing_threads.clear()
        if self._worker_locks is not None:
            self._worker_locks.after_fork_in_child()
        if was_closed:
            return
        if len(self._locks_held_for_fork) == 1 + len(self._reader_locks):
            self._file.after_fork_in_child()
        elif self.path != MEMORY:
            _left_open[self.path] = self
        if isinstance(self._process_lock, WriteLock):
            self._process_lock.close()
        if self._wakeups is not None:
            self._wakeups.after_fork_in_child()
        self._writing.close()

    # --- only SQLite has these ---------------------------------------------------------------------------

    def integrity_problems(self) -> list[str]:
        return sqlite_file.file_problems(self.path)

    def log_bytes(self) -> int | None:
        return None if self.path == MEMORY else log_growth.log_bytes(self.path)

    # --- the writer --------------------------------------------------------------------------------------

    def _write_until_closed(self) -> None:
        """The writer thread. It also closes the file, because the checkpoint at its end flushes to the disk, too."""
        self._write_loop()
        for reader in self._threads[1:]:
            reader.join()
        with self._write_lock:
            self._file.close()
        self._writing.close()
        if isinstance(self._process_lock, WriteLock):
            self._process_lock.close()
        if self._wakeups is not None:
            self._wakeups.close()

    def _write_loop(self) -> None:
        last = False
        last_batch = 0
        while not last:
            waiting = self._writing.get_together(last_batch, SHARED_COMMIT_MAX)
            last = None in waiting
            works = [work for work in waiting if work is not None and work.begin()]
            # Calls of an event loop have been gathered there.
            last_batch = sum(work.loop is None for work in works)
            if works:
                with self._write_lock:
                    self._commit(works)

    def write_here(self, work: Work) -> bool:
        """Commits in the caller's own thread if nobody else writes or waits to."""
        own = threading.get_ident()
        if own in self._writing_threads:
            raise write_interrupted_itself()
        if self.refused is not None or self._closed or self._write_lock.locked() or len(self._writing):
            return False
        try:
            self._writing_threads.add(own)
            with self._write_lock:
                try:
                    if self._closed:
                        _fail([work], store_closed())
                    elif work.begin():
                        self._commit([work])
                except BaseException:
                    # Ctrl-C in the middle. What was not committed is not stored, and others can write.
                    self._roll_back()
                    raise
        finally:
            self._writing_threads.discard(own)
        return True

    def _commit(self, works: list[Work]) -> None:
        if self.refused is not None:
            _fail(works, self.refused)
            return
        try:
            with self._process_lock:
                self._file.check()
                writer = self._file.writer
                if writer.in_transaction:
                    writer.execute("ROLLBACK")  # a second Ctrl-C came while the first was answered
                is_alone = len(works) == 1
                batch = Batch(writer, self.path, self._transaction, self.clock.now(), is_alone=is_alone)
                if is_alone and isinstance(works[0].verb, CoalescedInsert):
                    batch.insert(works[0].verb, works[0])
                else:
                    writer.execute("BEGIN IMMEDIATE")
                    self._file.begun()
                    batch.run(works)
                    self._wake(batch.early_wakes)
                    writer.execute("COMMIT")
        except Exception as error:
            self._give_up(works, error)
            return
        # Wake-ups before replies: a caller that gets its reply takes the interpreter's lock and keeps it for a while.
        self._wake(batch.wakes, knows_others=bool(batch.early_wakes))
        reply(batch.answers)
        if batch.committed:
            self.report_commit(batch.committed)

    def _wake(self, topics: set[str], *, knows_others: bool = False) -> None:
        if topics and self._wakeups is not None:
            self._wakeups.send(topics, knows_others=knows_others)
        if topics:
            self.tell(frozenset(topics))

    def _give_up(self, works: list[Work], error: Exception) -> None:
        """Nothing of this transaction is stored; every call in it fails with the reason."""
        self._roll_back()
        answer: Exception = error
        if isinstance(error, apsw.Error):
            answer = translated(error, self.path)
        elif isinstance(error, OSError):
            answer = translated_os(error, self.path)
        if isinstance(answer, StoreRefused):
            answer = self.refused = self._file.cause_of(answer)
            self._file.record_refusal(answer, self.clock.now())
        _fail(works, answer)
        if self.refused is not None:
            self.tell(frozenset({Topic.REFUSED}))

    def _roll_back(self) -> None:
        with contextlib.suppress(apsw.Error):
            if self._file.writer.in_transaction:
                self._file.writer.execute("ROLLBACK")
        self._process_lock.__exit__(None, None, None)

    # --- the readers -------------------------------------------------------------------------------------

    def _read_loop(
        self, works: queue.SimpleQueue[Work | None], lock: threading.Lock, connection: apsw.Connection
    ) -> None:
        while (work := works.get()) is not None:
            if not work.begin():
                continue
            try:
                with lock:
                    self._file.check()
                    connection.execute("BEGIN")
                    try:
                        with read_limit(connection, work.limit_s, SystemClock().monotonic):
                            result = work.run(self._transaction(connection, self.clock.now()))
                    finally:
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")
            except Exception as error:
                answer = translated(error, self.path) if isinstance(error, apsw.Error) else error
                if isinstance(answer, StoreRefused):
                    answer = self.refused = self._file.cause_of(answer)
                    # Not for ever: who waits for this answer may be a signal handler that interrupted a writer.
                    if self._write_lock.acquire(timeout=FORK_WAIT_S):
                        try:
                            self._file.record_refusal(answer, self.clock.now())
                        finally:
                            self._write_lock.release()
                reply([(work, answer)])
                if isinstance(answer, StoreRefused):
                    self.tell(frozenset({Topic.REFUSED}))
            else:
                reply([(work, result)])
        connection.close()


def _fail(works: list[Work], error: Exception) -> None:
    reply((work, error) for work in works)
