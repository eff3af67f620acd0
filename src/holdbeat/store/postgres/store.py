"""PostgresStore: the user's database, any number of workers on any number of machines.

Guards CAP-02 and DEC-008 under concurrency: each unit of work is one transaction on the database's own clock. A
unit that lost a race of locks is run again; one whose COMMIT got no answer is looked up by its transaction id, so
that nothing is done twice and nothing that was done is reported as failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg
from psycopg import errors as pg

from holdbeat.domain.clock import Clock, OffsetClock, SystemClock, to_millis
from holdbeat.domain.errors import HoldbeatError, StoreDown, StoreRefused
from holdbeat.store.adapter import Listener, PersistenceAdapter, read_took_too_long
from holdbeat.store.forks import forked
from holdbeat.store.loop_inserts import LoopInserts
from holdbeat.store.migrate import indexes_of
from holdbeat.store.postgres.awaited import AwaitedConnection, AwaitedPostgresTransaction
from holdbeat.store.postgres.calls import Calls
from holdbeat.store.postgres.database import Link, open_database
from holdbeat.store.postgres.dead_workers import dead_workers
from holdbeat.store.postgres.errors import LOST, OUTAGES, RACES, READ_ONLY, UNPREPARED, translated
from holdbeat.store.postgres.joining import callers_connection, check_joinable
from holdbeat.store.postgres.loop_inserts import PostgresLoopInserts
from holdbeat.store.postgres.loop_jobs import LoopJobs
from holdbeat.store.postgres.lost_commit import was_committed
from holdbeat.store.postgres.pipeline import StatementPipeline
from holdbeat.store.postgres.transaction import ColumnTypes, JoinedPostgresTransaction, PostgresTransaction
from holdbeat.store.postgres.wakeups import PostgresWakeups
from holdbeat.store.single_insert import SINGLE_INSERT_TOPICS
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, StoreTerms, Transaction
from holdbeat.store.work import Coalesced, CoalescedInsert, Work, reply

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")

WRITERS = 4
READERS = 2
"""Readers of the server itself; reads of clients have as many of their own."""
RACES_MAX = 12
"""How often a unit that lost a race of locks is run again."""
SAMPLE_WITHIN_S = 0.05
"""An answer that took longer says too little about the database's clock: it may have waited for a lock."""
RECONNECT_WITHIN_S = 8.0
"""How long a unit waits for the database to come back, or to write again, before its caller gets an error."""
CLOSE_WITHIN_S = 10.0
"""How long a store that is closed waits for answers of the database: it may be silent."""

_Performed = tuple[list[Any], frozenset[str], list[Row]]
"""Results, wake-ups, and the Events that were committed."""
_Perform = Callable[["Link", list[Work]], _Performed]


class PostgresStore(PersistenceAdapter):
    faults_of_data = (*PersistenceAdapter.faults_of_data, psycopg.DataError)
    calls_of_commit = 128  # an event loop stores one batch at a time itself (`loop_jobs.py`), and that costs it less

    def __init__(
        self,
        url: str,
        terms: StoreTerms,
        *,
        clock: Clock | None = None,
        create: bool = True,
        writers: int = WRITERS,
    ) -> None:
        super().__init__()
        self.url = url
        self.terms = terms
        self.writers_at_once = writers
        self.reconnect_s = RECONNECT_WITHIN_S
        self._own_clock = clock is None
        self.clock = clock or OffsetClock()
        self.refused: HoldbeatError | None = None
        """Why the store must not be used any more, once that is so."""
        self._closed = False
        self._types: ColumnTypes = open_database(url, create=create, clock=self.clock, indexes=indexes_of(terms))
        self._wakeups = PostgresWakeups(url, self.tell)
        self._waiting_caller = threading.Lock()
        self._callers_link = Link(url)
        """For a caller who writes in its own thread; made when there is one."""
        self._single_jobs = LoopJobs(
            url, terms, self._types, self.clock, self._lost_commit_timeout_s, self._wakeups,
            is_own_clock=self._own_clock,
        )  # fmt: skip
        self._single_jobs.committed = self._stored_in_loop
        self._single_jobs.put = lambda works: self._put(works, self._writing)
        self._writing = Calls(SystemClock().monotonic)
        self._reading = Calls(SystemClock().monotonic)
        self._reading_for_clients = Calls(SystemClock().monotonic)
        self._beating = Calls(SystemClock().monotonic)
        """Heartbeats have a connection of their own: all others may wait for a lock on some other table."""
        self._threads = [
            threading.Thread(target=self._loop, args=(calls, read_only), name=name, daemon=True)
            for calls, read_only, name, count in (
                (self._writing, False, "holdbeat-writer", writers),
                (self._reading, True, "holdbeat-reader", READERS),
                (self._reading_for_clients, True, "holdbeat-client-reader", READERS),
                (self._beating, False, "holdbeat-beats", 1),
            )
            for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    # --- the contract ------------------------------------------------------------------------------------

    def submit(self, work: Work, *, read_only: bool) -> None:
        readers = self._reading if work.limit_s is None else self._reading_for_clients
        self._put([work], readers if read_only else self._writing)

    def submit_together(self, works: list[Work]) -> None:
        if self.refused is not None or self._closed or not self._single_jobs.begin(works):
            self._put(works, self._writing)

    def submit_beat(self, work: Work) -> None:
        self._put([work], self._beating)

    def _put(self, works: list[Work], calls: Calls) -> None:
        refusal = self.refused or (
            StoreDown("The store has been closed.", code="store_closed") if self._closed else None
        )
        if refusal is None:
            calls.put(*works)
        else:
            reply((work, refusal) for work in works)

    def write_here(self, work: Work) -> bool:
        """Writes in the caller's own thread; one at a time, others share the writers' commits."""
        if self.refused is not None or self._closed or not self._waiting_caller.acquire(blocking=False):
            return False
        try:
            if self._closed:
                return False
            self._answer(self._write, self._callers_link, [work])
            return True
        except BaseException:
            # Ctrl-C in the middle: nobody knows how far the conversation with the database came.
            self._callers_link.drop()
            raise
        finally:
            self._waiting_caller.release()
            # Looked at after that: `close` does not wait for long for a caller that still writes.
            if self._closed:
                self._close_callers_link(0.0)

    def _close_callers_link(self, within_s: float) -> None:
        if self._waiting_caller.acquire(timeout=within_s):
            self._callers_link.close()
            self._waiting_caller.release()

    def _make_inserts(self, loop: asyncio.AbstractEventLoop, verb: CoalescedInsert[A, T]) -> LoopInserts[A, T] | None:
        return None if self._closed else PostgresLoopInserts(self, loop, verb, self._single_jobs.loop_link)

    def joined(self, connection: Any) -> Transaction:
        if self.refused is not None:
            raise self.refused
        check_joinable(connection)
        if isinstance(connection, AwaitedConnection):
            return AwaitedPostgresTransaction(connection, self.clock.now(), self.terms, self._types)
        return JoinedPostgresTransaction(connection, self.clock.now(), self.terms, self._types)

    def for_thread(self, connection: Any, loop: asyncio.AbstractEventLoop) -> Any:
        return AwaitedConnection(connection, loop) if isinstance(connection, psycopg.AsyncConnection) else connection

    @contextlib.contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Row]]:
        if self.refused is not None or self._closed:
            raise self.refused or StoreDown("The store has been closed.", code="store_closed")
        with callers_connection(self.url) as connection:
            yield connection

    def listen(self, listener: Listener) -> Callable[[], None]:
        self._wakeups.listen()
        return super().listen(listener)

    def known_dead(self) -> frozenset[str]:
        return self.read_sync(dead_workers)

    async def find_dead(self) -> frozenset[str]:
        return await self.read(dead_workers)

    @property
    def is_pooled(self) -> bool:
        with contextlib.closing(Link(self.url)) as link:
            return link.get().is_pooled

    def after_fork_in_child(self) -> None:
        """Leaves the connections alone: they are the parent's, and the driver ends none that it did not make."""
        super().after_fork_in_child()
        self._closed = True
        self.refused = forked()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for calls in (self._writing, self._reading, self._reading_for_clients, self._beating):
            calls.close()
        ends = SystemClock().monotonic() + CLOSE_WITHIN_S
        for thread in self._threads:
            thread.join(max(0.0, ends - SystemClock().monotonic()))
        self._close_inserts()
        self._close_callers_link(max(0.0, ends - SystemClock().monotonic()))
        self._single_jobs.close()
        self._wakeups.close()

    # --- the threads -------------------------------------------------------------------------------------

    def _loop(self, calls: Calls, read_only: bool) -> None:
        link = Link(self.url, reads_only=read_only)
        perform = self._read if read_only else self._write
        taken: list[Work] | None = None
        while (taken := calls.take(taken[0] if taken else None)) is not None:
            works = [work for work in taken if work.begin()]
            if works:
                self._answer(perform, link, works)
        link.close()

    def _answer(self, perform: _Perform, link: Link, works: list[Work]) -> None:
        try:
            results, wakes, committed = self._with_retries(lambda: perform(link, works), link)
        except Exception as error:
            if len(works) > 1 and not isinstance(error, OUTAGES):
                # One call spoiled it for all that were done together: now each on its own.
                for work in works:
                    self._answer(perform, link, [work])
                return
            answer = self._translated(error)
            reply((work, answer) for work in works)
            return
        if committed:
            self.report_commit(committed)
        reply(zip(works, results, strict=True))
        if wakes:
            self.tell(wakes)
            self._wakeups.send(wakes)

    def _with_retries(self, perform: Callable[[], Any], link: Link) -> Any:
        """Runs a unit again after lost races and lost connections, within bounds."""
        races = 0
        lost_at: float | None = None  # not when the unit began: it may have stood still for longer than that
        pause_s = 0.05
        while True:
            try:
                return perform()
            except RACES:
                races += 1
                if races > RACES_MAX:
                    raise
                time.sleep(random.uniform(0, 0.01 * races))
            except UNPREPARED:
                races += 1
                if races > RACES_MAX:
                    raise
                link.drop()
            except (*LOST, READ_ONLY) as error:
                if isinstance(error, pg.QueryCanceled | pg.DiskFull):
                    raise
                link.drop()
                now = self.clock.monotonic()
                lost_at = now if lost_at is None else lost_at
                if self._closed or now + pause_s > lost_at + self.reconnect_s:
                    raise
                time.sleep(random.uniform(pause_s / 2, pause_s))
                pause_s = min(pause_s * 2, 1.0)

    def _write(self, link: Link, works: list[Work]) -> _Performed:
        connection = link.get()
        if isinstance(works[0].verb, CoalescedInsert) and not connection.is_pooled:
            # One round trip instead of three. A pooled connection gets its settings when a transaction begins.
            with StatementPipeline(connection) as pipeline:
                single = PostgresTransaction(connection, self.clock.now(), self.terms, self._types, pipeline)
                return works[0].verb.many(single, [work.args[0] for work in works]), frozenset(), []
        if len(works) == 1 and not connection.is_pooled:
            stored = self._single_jobs.write(link, works[0].verb, works[0].args[0] if works[0].args else None)
            if stored is not None:
                self._sample_clock(stored.database_clock, stored.asked)
                return [stored.result], SINGLE_INSERT_TOPICS, [stored.event]
        commit_sent, xid = False, ""
        results: list[Any] = []
        tx: PostgresTransaction | None = None
        try:
            with StatementPipeline(connection) as pipeline:
                connection.begin(pipeline)
                asked = self.clock.monotonic()

                def begun_at(row: Row) -> datetime:
                    nonlocal xid
                    xid = row[1]
                    self._sample_clock(row[0], asked)
                    return to_millis(row[0]) if self._own_clock else self.clock.now()

                tx = PostgresTransaction(connection, None, self.terms, self._types, pipeline, begun_at)
                verb = works[0].verb
                if isinstance(verb, Coalesced):
                    results = verb.many(tx, [work.args[0] for work in works])
                else:
                    results = [works[0].run(tx)]
                tx.write_events()
                assert tx.now, "the id of the transaction is known before its COMMIT is sent"
                if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.INERROR:
                    # The server would answer this COMMIT with a rollback, and call it a success.
                    raise pg.InFailedSqlTransaction("a statement failed, and the unit went on")
                commit_sent = True
                pipeline.send("COMMIT")
        except LOST as error:
            if commit_sent and not isinstance(error, RACES):
                # The error may have come after the COMMIT was done: only the database knows.
                assert tx is not None
                link.drop()
                if was_committed(link, xid, tx.written, self.clock, self._lost_commit_timeout_s):
                    return results, frozenset(tx.wakes), tx.written
            else:
                link.roll_back()
            raise
        except BaseException:
            link.roll_back()
            raise
        return results, frozenset(tx.wakes), tx.written

    async def write(self, verb: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Stores single jobs in the event loop of their caller, unless they have a transaction to share."""
        stored = None
        if self.refused is None and not self._closed and self.loop_calls(asyncio.get_running_loop()).is_alone:
            try:
                stored = await self._single_jobs.write_in_loop(verb, args[0] if args else None)
            except psycopg.Error as error:
                raise self._translated(error) from error
        if stored is None:
            return await super().write(verb, *args, **kwargs)
        self._stored_in_loop([stored.event], stored.database_clock, stored.asked, stored.is_notified)
        if self.timer is not None:
            self.timer("write", self.clock.monotonic() - stored.asked)
        return stored.result  # type: ignore[no-any-return]

    def _stored_in_loop(self, committed: list[Row], database_clock: datetime, asked: float, is_notified: bool) -> None:
        self._sample_clock(database_clock, asked)
        self.report_commit(committed)
        self.tell(SINGLE_INSERT_TOPICS)
        if not is_notified:
            self._wakeups.send(SINGLE_INSERT_TOPICS)

    def _sample_clock(self, database_clock: datetime, asked: float) -> None:
        """Takes note of the time that the database gave to a question asked at that instant."""
        answered = self.clock.monotonic()
        if self._own_clock and isinstance(self.clock, OffsetClock) and answered - asked < SAMPLE_WITHIN_S:
            self.clock.sample(database_clock, asked=asked, answered=answered)

    def _lost_commit_timeout_s(self) -> float:
        return 0.0 if self._closed else 4 * self.reconnect_s

    def _read(self, link: Link, works: list[Work]) -> _Performed:
        connection = link.get()
        results = []
        for work in works:
            try:
                with StatementPipeline(connection) as pipeline:
                    connection.begin(pipeline, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
                    if work.limit_s is not None:
                        pipeline.send(f"SET LOCAL statement_timeout = {int(work.limit_s * 1000)}")
                    tx = PostgresTransaction(connection, self.clock.now(), self.terms, self._types, pipeline)
                    tx.known_dead = partial(dead_workers, tx)
                    results.append(work.run(tx))
                    pipeline.send("COMMIT")
            except HoldbeatError as error:
                link.roll_back()
                results.append(error)
            except pg.QueryCanceled:
                link.roll_back()
                if work.limit_s is None:
                    raise
                results.append(read_took_too_long(work.limit_s))
            except BaseException:
                link.roll_back()
                raise
        return results, frozenset(), []

    def _translated(self, error: Exception) -> Exception:
        answer = translated(error)
        if isinstance(answer, StoreRefused) and (answer.code == "store_replaced" or isinstance(error, READ_ONLY)):
            self.refused = answer
            self.tell(frozenset({Topic.REFUSED}))
        return answer
