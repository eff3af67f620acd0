"""ClockWatch: notices when a wall clock jumps, and when this machine and the database disagree about the time.

Guards TIME-07: a jump against the monotonic clock, or a skew, above two seconds is an Event and a metric, told once
for each time it happens, by every process: each machine has a clock of its own.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from holdbeat.domain.clock import Clock, OffsetClock, SystemClock
from holdbeat.domain.worker import Worker
from holdbeat.engine.service import Service
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.firing.upcoming import database_time, record_clock_jump

log = logging.getLogger("holdbeat.engine")

TOLERANCE_S = 2.0
SKEW_CHECK_S = 5.0
POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class ClockJump:
    """A clock that is not where it should be. Positive: it is ahead."""

    clock: str
    """`machine` and `database` jumped against the monotonic clock; `skew` is the database against the machine."""
    amount_s: float


class _Watched:
    """One wall clock beside the monotonic one."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._wall, self._monotonic = clock.now(), clock.monotonic()

    def check(self) -> ClockJump | None:
        wall, monotonic = self._clock.now(), self._clock.monotonic()
        amount_s = (wall - self._wall).total_seconds() - (monotonic - self._monotonic)
        # Counted from the last check, so that a clock which is slewed slowly never adds up to a jump.
        self._wall, self._monotonic = wall, monotonic
        return ClockJump(self.name, round(amount_s, 3)) if abs(amount_s) > TOLERANCE_S else None


class ClockWatch:
    """Compares the clocks whenever it is asked to."""

    def __init__(self, store: PersistenceAdapter, *, machine: Clock | None = None) -> None:
        self._store = store
        self.skew_s = 0.0
        self._remote = store.clock if isinstance(store.clock, OffsetClock) else None
        self._machine: Clock = machine or (SystemClock() if self._remote is not None else store.clock)
        self._watched = [_Watched("machine", self._machine)]
        if self._remote is not None:
            self._watched.append(_Watched("database", self._remote))
        self._is_skewed = False
        self._skew_checked_at: float | None = None

    @property
    def deciding(self) -> str:
        """The clock that decides what is due: the database's where it has one."""
        return "machine" if self._remote is None else "database"

    async def check(self, worker: Worker | None = None) -> list[ClockJump]:
        """All jumps since the last check, and a skew that has just begun; each is recorded with who noticed it."""
        if self._remote is not None:
            await self._ask_database(self._remote)
        jumps = [jump for watched in self._watched if (jump := watched.check()) is not None]
        if self._remote is not None:
            jumps += self._skew(self._remote)
        for jump in jumps:
            host = worker.host if worker is not None else socket.gethostname()
            log.warning("clock jump on %s: %s by %+.3f s", host, jump.clock, jump.amount_s)
            worker_id = worker.id if worker is not None else None
            await self._store.write(record_clock_jump, jump.clock, jump.amount_s, host=host, worker_id=worker_id)
        return jumps

    async def _ask_database(self, remote: OffsetClock) -> None:
        """Reads the database's clock now and then, since nobody may have written for a while."""
        asked = remote.monotonic()
        if self._skew_checked_at is not None and asked - self._skew_checked_at < SKEW_CHECK_S:
            return
        self._skew_checked_at = asked
        database_now: datetime = await self._store.read(database_time)
        answered = remote.monotonic()
        # Every write takes a finer sample than this; it only corrects what is far off.
        if abs(database_now - remote.now()) > timedelta(seconds=0.5 + answered - asked):
            remote.sample(database_now, asked=asked, answered=answered)

    def _skew(self, remote: OffsetClock) -> list[ClockJump]:
        self.skew_s = round((remote.now() - self._machine.now()).total_seconds(), 3)
        was_skewed, self._is_skewed = self._is_skewed, abs(self.skew_s) > TOLERANCE_S
        return [ClockJump("skew", self.skew_s)] if self._is_skewed and not was_skewed else []


class ClockWatchService(Service):
    """Checks the clocks of a process in which no ScheduleTrigger does."""

    name: ClassVar[str] = "clock-watch"
    watches_clock: ClassVar[bool] = True

    def __init__(self, store: PersistenceAdapter) -> None:
        super().__init__(store, POLL_S)
        self._watch = ClockWatch(store)

    async def step(self) -> list[ClockJump]:
        return await self._watch.check(self.worker)
