"""A real SQLite store in memory, driven inline on one connection, with a view of it for each simulated process."""

from __future__ import annotations

import contextlib
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw

from holdbeat.domain.clock import to_millis
from holdbeat.domain.errors import StoreDown
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.sqlite.errors import translated
from holdbeat.store.sqlite.file import MEMORY, open_file
from holdbeat.store.sqlite.transaction import SqliteTransaction
from holdbeat.store.transaction import StoreTerms, Transaction
from holdbeat.store.work import Work
from tests.simulate.loop import Owner, VirtualLoop

START = datetime(2026, 1, 1, tzinfo=UTC)


class SimulatedClock:
    """The wall clock of the machine, which can jump, and the loop's own time, which cannot."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.offset_s = 0.0

    def now(self) -> datetime:
        return to_millis(START + timedelta(seconds=self._loop.time() + self.offset_s))

    def monotonic(self) -> float:
        return self._loop.time()


class Database:
    """What all processes share: the file, the clock, and the kernel's knowledge of who is alive."""

    def __init__(self, loop: VirtualLoop, terms: StoreTerms, choice: random.Random, *, kernel_tells: bool) -> None:
        self.loop = loop
        self.clock = SimulatedClock(loop)
        self.terms = terms
        self.choice = choice
        self.kernel_tells = kernel_tells
        self.connection, _ = open_file(MEMORY, create=True)
        self.stores: list[InlineStore] = []
        self.announced: dict[str, Owner] = {}
        self.commits = 0

    def latency_s(self, slow_s: float) -> float:
        """Mostly none, so that the loop has nothing to wait for; now and then enough for others to come between."""
        if slow_s:
            return self.choice.uniform(0.0, slow_s)
        return 0.0 if self.choice.random() < 0.7 else self.choice.uniform(0.0, 0.02)

    def perform(self, work: Work, *, read_only: bool) -> tuple[Any, frozenset[str]]:
        """One verb in one transaction."""
        connection = self.connection
        tx = SqliteTransaction(connection, self.clock.now(), self.terms)
        if self.kernel_tells:
            tx.known_dead = self.known_dead
        connection.execute("BEGIN" if read_only else "BEGIN IMMEDIATE")
        try:
            result = work.run(tx)
            if not read_only:
                tx.write_events()
            connection.execute("ROLLBACK" if read_only else "COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, apsw.Error):
                raise translated(error, MEMORY) from error
            raise
        self.commits += not read_only
        return result, frozenset() if read_only else frozenset(tx.wakes)

    def known_dead(self) -> frozenset[str]:
        return frozenset(worker_id for worker_id, owner in self.announced.items() if owner.is_dead)

    def wake(self, topics: frozenset[str]) -> None:
        other_topics = topics - {"events"}
        if other_topics:
            for store in self.stores:
                store.hear(other_topics)


class InlineStore(PersistenceAdapter):
    """One process's view: its calls, its answers, its wake-ups, and the faults that hit them."""

    def __init__(self, database: Database, owner: Owner) -> None:
        super().__init__()
        self.url = "sqlite:///:memory:"
        self.path = MEMORY
        self.clock = database.clock
        self.terms = database.terms
        self.database = database
        self.owner = owner
        self.faults: list[str] = []
        """What happens to the next writes: `before` or `after` the commit the line is cut."""
        self.deaf_until = 0.0
        self.slow_until = 0.0
        self.slow_s = 0.0
        database.stores.append(self)

    def submit(self, work: Work, *, read_only: bool) -> None:
        if self.owner.is_dead:
            return
        if work.future is not None:
            self._answer(work, self._outcome(work, read_only))
            return
        loop = self.database.loop
        slow_s = self.slow_s if loop.time() < self.slow_until else 0.0
        # On its way the call belongs to nobody: it arrives even if its process is killed or frozen meanwhile.
        loop.call_later(
            self.database.latency_s(slow_s), self._arrive, work, read_only, slow_s, context=loop.nobody.context
        )

    def _arrive(self, work: Work, read_only: bool, slow_s: float) -> None:
        outcome = self._outcome(work, read_only)
        if self.owner.is_dead:
            return
        delay_s = self.database.latency_s(slow_s)
        self.database.loop.call_later(delay_s, self._answer, work, outcome, context=self.owner.context)

    def _outcome(self, work: Work, read_only: bool) -> Any:
        """A result, or the exception that its caller gets."""
        fault = self.faults.pop(0) if self.faults and not read_only else None
        if fault == "before":
            return StoreDown("The line was cut before the commit; nothing was stored.")
        if not work.begin():
            return None
        try:
            result, wakes = self.database.perform(work, read_only=read_only)
        except Exception as error:
            return error
        if wakes:
            self.database.wake(wakes)
        if fault == "after":
            return StoreDown("The line was cut after the commit; it is not known whether it was stored.")
        return result

    def _answer(self, work: Work, outcome: Any) -> None:
        waiting: Any = work.waiter if work.waiter is not None else work.future
        if waiting.done():
            return
        if isinstance(outcome, Exception):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)

    def hear(self, topics: frozenset[str]) -> None:
        if not self.owner.is_dead and self._listeners and self.database.loop.time() >= self.deaf_until:
            self.database.loop.call_soon(self.tell, topics, context=self.owner.context)

    def joined(self, connection: Any) -> Transaction:
        raise NotImplementedError

    def connection(self) -> contextlib.AbstractContextManager[Any]:
        raise NotImplementedError

    def close(self) -> None:
        if self in self.database.stores:
            self.database.stores.remove(self)

    def announce_alive(self, worker_id: str) -> None:
        self.database.announced[worker_id] = self.owner

    def withdraw_alive(self, worker_id: str, *, is_stopped: bool = True) -> None:
        if is_stopped:
            self.database.announced.pop(worker_id, None)

    def known_dead(self) -> frozenset[str]:
        return self.database.known_dead() if self.database.kernel_tells else frozenset()
