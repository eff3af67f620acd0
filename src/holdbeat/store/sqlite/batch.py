"""A batch: units of work that share one commit, but not each other's failure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import apsw

from holdbeat.domain.errors import HoldbeatError, StoreDown, StoreRefused
from holdbeat.store.single_insert import SINGLE_INSERT_TOPICS
from holdbeat.store.sqlite.errors import translated
from holdbeat.store.sqlite.single_job import insert_single_job, insert_uniform_jobs
from holdbeat.store.sqlite.transaction import SqliteTransaction
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, Transaction
from holdbeat.store.work import Coalesced, CoalescedInsert, Work

MakeTransaction = Callable[[apsw.Connection, datetime], SqliteTransaction]


class Batch:
    """Runs units of work within the transaction that is open on a connection; the caller commits."""

    def __init__(
        self, connection: apsw.Connection, path: str, transaction: MakeTransaction, now: datetime, *, is_alone: bool
    ) -> None:
        self._connection = connection
        self._path = path
        self._transaction = transaction
        self._now = now
        self._is_alone = is_alone
        """One unit needs no savepoint: if it fails, the whole transaction does."""
        self.answers: list[tuple[Work, Any]] = []
        self.early_wakes: set[str] = set()
        """Topics to tell before the commit. A worker needs about as long to get to the write lock, and waits for it."""
        self.wakes: set[str] = set()
        """Topics to tell after the commit."""
        self.committed: list[Row] = []

    def run(self, works: list[Work]) -> None:
        """Runs calls of one Coalesced verb together, all others one by one."""
        if self._store_single_job(works[0]) if self._is_alone else self._store_uniform_jobs(works):
            return
        coalesced: dict[Coalesced[Any, Any], list[Work]] = {}
        for work in works:
            if isinstance(work.verb, Coalesced):
                coalesced.setdefault(work.verb, []).append(work)
        for verb, calls in coalesced.items():
            results = self._unit(partial(_run_many, verb, [call.args[0] for call in calls]))
            if isinstance(results, Exception):
                # One call failed the whole unit: run each on its own.
                results = [results] if len(calls) == 1 else [self._unit(call.run) for call in calls]
            self.answers.extend(zip(calls, results, strict=True))
        for work in works:
            if not isinstance(work.verb, Coalesced):
                self.answers.append((work, self._unit(work.run)))

    def insert(self, verb: CoalescedInsert[Any, Any], work: Work) -> None:
        """Runs the one statement of a call that is alone; it commits by itself."""
        tx = self._transaction(self._connection, self._now)
        self.answers.append((work, verb.many(tx, [work.args[0]])[0]))

    def _store_single_job(self, work: Work) -> bool:
        """Stores a single plain job without reading its type; False if the work is anything else."""
        if not isinstance(work.verb, Coalesced) or work.verb.alone is None:
            return False
        tx = self._transaction(self._connection, self._now)
        insert = work.verb.alone(tx, work.args[0])
        stored = None if insert is None else insert_single_job(tx, insert)
        if insert is None or stored is None:
            return False
        position, event = stored
        self.answers.append((work, insert.answer(position, self._now)))
        self.early_wakes.add(Topic.READY)
        self.wakes.update(SINGLE_INSERT_TOPICS - self.early_wakes)
        self.committed.append(event)
        return True

    def _store_uniform_jobs(self, works: list[Work]) -> bool:
        """Stores plain jobs that differ in their params alone; False if there is anything else among the works.

        Each statement gives the interpreter's lock away, and here are half as many.
        """
        verb = works[0].verb
        if not isinstance(verb, Coalesced) or verb.uniform is None or any(work.verb is not verb for work in works):
            return False
        tx = self._transaction(self._connection, self._now)
        try:
            insert = verb.uniform(tx, [work.args[0] for work in works])
            stored = None if insert is None else insert_uniform_jobs(tx, insert)
        except Exception:
            if not self._connection.in_transaction:
                raise
            # One job failed all of them. Each call gets its own answer.
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")
            return False
        if insert is None or stored is None:
            return False
        positions, events = stored
        self.answers.extend(zip(works, insert.answers(positions, self._now), strict=True))
        self.wakes.update(SINGLE_INSERT_TOPICS)
        self.committed += events
        return True

    def _unit(self, call: Callable[[Transaction], Any]) -> Any:
        """Runs one unit in a savepoint of its own and returns its result, or the error that rolled it back."""
        tx = self._transaction(self._connection, self._now)
        if not self._is_alone:
            self._connection.execute("SAVEPOINT unit")
        try:
            result = call(tx)
            tx.write_events()
        except Exception as error:
            if self._is_alone or not self._connection.in_transaction:
                raise
            self._connection.execute("ROLLBACK TO unit")
            result = translated(error, self._path) if isinstance(error, apsw.Error) else error
            if isinstance(result, StoreRefused | StoreDown):
                raise result from error
        else:
            self.wakes.update(tx.wakes)
            self.committed.extend(tx.written)
        if not self._is_alone:
            self._connection.execute("RELEASE unit")
        return result


def _run_many(verb: Coalesced[Any, Any], batches: list[Any], tx: Transaction) -> list[Any]:
    return verb.many(tx, batches)


def write_interrupted_itself() -> HoldbeatError:
    """The error for a signal handler that would wait for the write that it interrupted."""
    return HoldbeatError(
        "A signal handler wanted to write to the store while it interrupted a write of its own thread, which cannot go "
        "on before the handler returns. In the handler only set a flag, or hand the work to an event loop with "
        "loop.call_soon_threadsafe or to another thread, and write from there.",
        code="write_interrupted_itself",
    )


def store_closed() -> StoreDown:
    """The error for a call after `close`."""
    return StoreDown("The store has been closed.", code="store_closed")


def no_transaction() -> HoldbeatError:
    """The error for a connection in whose transaction no job can be stored (QUE-03)."""
    return HoldbeatError(
        "To enqueue inside your own transaction on SQLite, hand in the connection of `with app.connection() as "
        "connection:`, or an apsw connection to the store's file on which BEGIN IMMEDIATE was executed.",
        code="no_transaction",
    )
