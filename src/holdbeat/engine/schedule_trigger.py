"""ScheduleTrigger: lets Schedules fire at their due instant.

Guards TIME-04: it looks ahead and waits in memory, so that firing begins at the instant; but what is due is decided by
the transaction that fires, on the store's clock. The memory holds moments and no claims: nothing can be fired early or
twice because of it, and losing it loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import ClassVar

from holdbeat.engine.clock_watch import TOLERANCE_S, ClockWatch
from holdbeat.engine.service import Service
from holdbeat.observe.recorder import SILENT, Recorder
from holdbeat.settings import Settings
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.firing.fire_due import Firing, fire_due
from holdbeat.store.firing.upcoming import drifted, is_behind, read_upcoming, realign
from holdbeat.store.topics import Topic

POLL_S = 1.0
"""How often it checks the clocks while nothing is to be done."""
READ_AGAIN_MAX_S = 30.0
"""Plans further ahead than a minute wake no trigger, so due times must be read at least this often."""
READS_APART_S = 0.02
"""Wake-ups that come closer than this share one read."""
NOT_YET_S = 0.001
CHECKED_AT_ONCE = 100
CONTENDED = timedelta(milliseconds=5)


class ScheduleTrigger(Service):
    name: ClassVar[str] = "schedule-trigger"
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.SCHEDULES})
    watches_clock: ClassVar[bool] = True

    def __init__(
        self,
        store: PersistenceAdapter,
        *,
        horizon_s: float = 10.0,
        batch: int = 500,
        on_fired: Callable[[Firing], None] = lambda firing: None,
    ) -> None:
        super().__init__(store, POLL_S)
        self.watch = ClockWatch(store)
        self.on_fired = on_fired
        """Told of every transaction that looked at schedules: for lag, fires and double-fire refusals."""
        self._horizon_s = horizon_s
        self._batch = batch
        self._moments: list[datetime] = []
        self._known: set[datetime] = set()
        self._known_until: datetime | None = None
        self._read_is_due = True
        self._read_at = float("-inf")
        self._is_new = True
        self._is_well = True
        self._unchecked: str | None = ""
        """The id up to which plans from before the start were checked; None when all were."""

    @classmethod
    def for_settings(
        cls, store: PersistenceAdapter, settings: Settings, *, recorder: Recorder = SILENT
    ) -> ScheduleTrigger:
        def note(firing: Firing) -> None:
            if firing.fired:
                recorder.fired(firing.latest_s, firing.fired)

        return cls(store, horizon_s=settings.horizon_s, batch=settings.trigger_batch, on_fired=note)

    @property
    def lag_s(self) -> float:
        """The time for which something that is due has been waiting."""
        if not self._moments:
            return 0.0
        return max(0.0, (self.store.clock.now() - self._moments[0]).total_seconds())

    def wake(self) -> None:
        """Something changed: the memory is no longer complete."""
        self._read_is_due = True
        super().wake()

    async def step(self) -> int:
        """Checks the clocks, looks ahead if that is due, and fires all that is due now.

        Returns how many schedules it judged. Called by hand, without a loop that changes wake, it always reads.
        """
        self._is_well = False
        if self._task is None:
            self._read_is_due, self._read_at = True, float("-inf")
        await self._check_clocks()
        done = 0
        while not self._stopping:
            if self._must_read():
                await self._read_upcoming()
            if not self._moments or self._moments[0] > self.store.clock.now():
                break
            firing = await self._fire()
            done += firing.judged
            if not firing.judged and self._moments and self._moments[0] > firing.at:
                # The database's clock is a moment behind our estimate of it.
                break
        if self._unchecked is not None:
            await self._check_plans()
        self._is_well = True
        return done

    # --- clocks -------------------------------------------------------------------------------------------

    async def _check_clocks(self) -> None:
        jumps = await self.watch.check(self.worker)
        went_back = any(jump.amount_s < 0 for jump in jumps if jump.clock == self.watch.deciding)
        if self._is_new:
            # While nobody watched, the clock may have gone back too.
            went_back = await self.store.read(is_behind, TOLERANCE_S) or went_back
            self._is_new = False
        if jumps:
            self._read_is_due = True
        if went_back:
            await self._realign()

    async def _check_plans(self) -> None:
        """Compares a few plans from before the start with the timetables: the rules of a zone may have changed."""
        assert self._unchecked is not None
        has_drifted, following = await self.store.read(drifted, self._unchecked, CHECKED_AT_ONCE)
        if has_drifted:
            await self.store.write(realign, self._unchecked, CHECKED_AT_ONCE, went_back=False)
            self._read_is_due = True
        self._unchecked = following

    async def _realign(self) -> None:
        after_id: str | None = ""
        while after_id is not None:
            after_id = await self.store.write(realign, after_id, self._batch)
        self._read_is_due = True

    # --- memory -------------------------------------------------------------------------------------------

    def _must_read(self) -> bool:
        since = self.store.clock.monotonic() - self._read_at
        if self._read_is_due:
            return since >= READS_APART_S
        if since >= min(self._horizon_s / 2, READ_AGAIN_MAX_S):
            return True
        # The last read was cut off at its limit, and what it returned is used up.
        return not self._moments and self._known_until is not None and self._known_until <= self.store.clock.now()

    async def _read_upcoming(self) -> None:
        self._read_is_due = False
        self._read_at = self.store.clock.monotonic()
        until = self.store.clock.now() + timedelta(seconds=self._horizon_s)
        try:
            upcoming = await self.store.read(read_upcoming, until)
        except BaseException:
            self._read_is_due = True
            raise
        self._known_until = upcoming.known_until
        self._moments, self._known = [], set()
        self._remember(upcoming.moments)

    def _remember(self, moments: Iterable[datetime]) -> None:
        for moment in moments:
            if moment not in self._known and (self._known_until is None or moment <= self._known_until):
                self._known.add(moment)
                heapq.heappush(self._moments, moment)

    def _forget(self, until: datetime) -> None:
        while self._moments and self._moments[0] <= until:
            self._known.discard(heapq.heappop(self._moments))

    # --- firing -------------------------------------------------------------------------------------------

    async def _fire(self) -> Firing:
        firing = await self.store.write(fire_due, self._batch)
        if not firing.is_full:
            self._forget(firing.at)
        self._remember(firing.wakes)
        if firing.is_contended:
            # The process that has locked it may leave it due, without a wake-up.
            heapq.heappush(self._moments, firing.at + CONTENDED)
        if firing.judged:
            self.on_fired(firing)
        return firing

    async def _rest(self, pause_s: float) -> None:
        """Waits until the next moment or a wake-up, but never longer than the loop wants."""
        # After a failure the pause is kept, or a store that is down would be asked without end.
        until_s = self._until_next_s() if self._is_well else pause_s
        if until_s < pause_s and not self._woken.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until_s):
                    await self._woken.wait()
            self._woken.clear()
            return
        await super()._rest(pause_s)

    def _until_next_s(self) -> float:
        waits = [POLL_S if self._unchecked is None else NOT_YET_S]
        if self._moments:
            waits.append(max(NOT_YET_S, (self._moments[0] - self.store.clock.now()).total_seconds()))
        if self._read_is_due:
            waits.append(max(NOT_YET_S, READS_APART_S + self._read_at - self.store.clock.monotonic()))
        return min(waits)
