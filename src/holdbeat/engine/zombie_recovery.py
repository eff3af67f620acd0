"""ZombieRecovery: finds work whose worker is gone, and lets it end the ordinary way.

Guards REC-01…05: at start and continuously; each case is a unit of work of its own that looks again under the lock,
so that several recoverers act once and one failure leaves the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar

from holdbeat.domain.clock import Clock
from holdbeat.domain.errors import StoreRefused, Unavailable
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.run import ErrorKind
from holdbeat.engine.clock_watch import TOLERANCE_S
from holdbeat.engine.service import Service
from holdbeat.handlers.marked_processes import kill_marked
from holdbeat.handlers.threads import in_own_thread
from holdbeat.observe.wording import counted
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.expiry import expire_jobs
from holdbeat.store.postgres.sessions import end_standing_sessions
from holdbeat.store.rare_events import has_clock_jumped
from holdbeat.store.recovery.recover import (
    BorrowedSlot,
    Trouble,
    borrowed_slots,
    end_silent_worker,
    find_trouble,
    recovery_units,
    stop_dead_worker,
)
from holdbeat.store.running.reservations import late_reservations

log = logging.getLogger("holdbeat.engine")

DEATH_WATCH_S = 1.0
"""How often the kernel is asked for dead workers of this machine."""
KILL_WITHIN_S = 2.0
"""How long recovery looks for processes of lost runs before it gives their slots away all the same."""
THOROUGH_S = 300.0
"""How often states are looked for that only a hand can have written."""


class _SeenFor:
    """How long each of several things has been unchanged, on the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[object, float]] = {}

    def update(self, marks: Mapping[str, object]) -> dict[str, float]:
        """`marks` are the present things by id, each with a value that differs once the thing has changed."""
        now = self._clock.monotonic()
        before = self._seen
        self._seen = {
            id_: before[id_] if id_ in before and before[id_][0] == mark else (mark, now) for id_, mark in marks.items()
        }
        return {id_: now - since for id_, (_, since) in self._seen.items()}


class _ForwardJumps:
    """Whether the clock that decides what is late may have jumped forwards in the last `memory_s` seconds."""

    def __init__(self, store: PersistenceAdapter, memory_s: float) -> None:
        self._store = store
        self._memory_s = memory_s
        self._seen: tuple[datetime, float] | None = None
        self._jumped_at: float | None = None

    async def check(self, wall: datetime, *, is_anything_late: bool) -> bool:
        """A process that started after the jump knows of it from others, and asks only if it matters."""
        now = self._store.clock.monotonic()
        if self._seen is not None:
            before, then = self._seen
            if (wall - before).total_seconds() - (now - then) > TOLERANCE_S:
                self._jumped_at = now
        self._seen = wall, now
        if self._jumped_at is not None and now - self._jumped_at < self._memory_s:
            return True
        since = wall - timedelta(seconds=self._memory_s)
        return is_anything_late and await self._store.read(has_clock_jumped, since)


class ZombieRecovery(Service):
    name: ClassVar[str] = "zombie-recovery"

    def __init__(self, store: PersistenceAdapter, terms: LeaseTerms, recover_s: float) -> None:
        super().__init__(store, min(recover_s, DEATH_WATCH_S))
        self._terms = terms
        self._recover_s = recover_s
        self._checked_at: float | None = None
        self._thorough_at: float | None = None
        self._forward_jumps = _ForwardJumps(store, terms.lease_s + terms.grace_s)
        self._late_leases = _SeenFor(store.clock)
        self._late_reservations = _SeenFor(store.clock)
        self._borrowed = _SeenFor(store.clock)
        self._silent_workers = _SeenFor(store.clock)

    async def step(self) -> int:
        """A full check if it is due, or if a worker has died; otherwise nothing."""
        now = self.store.clock.monotonic()
        dead = await self.store.find_dead()
        if not dead and self._checked_at is not None and now - self._checked_at < self._recover_s:
            return 0
        self._checked_at = now
        is_thorough = self._thorough_at is None or now - self._thorough_at >= THOROUGH_S
        repaired = await self.recover(dead, thorough=is_thorough)
        if is_thorough:
            self._thorough_at = now
        return repaired

    async def _late_for_long(self, trouble: Trouble, borrowed: list[BorrowedSlot], late: set[str]) -> Trouble:
        """Leaves out what may be late only because the wall clock jumped, ours or the database's (LEASE-06).

        A worker that lives beats and extends its reservations within `heartbeat_s`, whatever the wall clock says. So
        its work counts as lost once it was seen late, unchanged, for that long on the monotonic clock. After a jump
        forwards it must have been seen so for a whole lease: a worker that stands still for a while cannot beat, and
        its lease is not over. A borrowed slot may have a shorter time of its own.
        """
        late_leases = {lease.lease_id: lease.heartbeat_at for lease in trouble.leases if lease.kind is ErrorKind.LOST}
        is_anything_late = bool(late_leases or late or trouble.silent_workers)
        has_jumped = await self._forward_jumps.check(trouble.at, is_anything_late=is_anything_late)
        enough_s = self._terms.lease_s if has_jumped else self._terms.heartbeat_s
        leases = self._late_leases.update(late_leases)
        slots = self._borrowed.update({slot.reservation_id: slot.extended_at for slot in borrowed})
        reservations = self._late_reservations.update(dict.fromkeys(late))
        workers = self._silent_workers.update(dict.fromkeys(trouble.silent_workers))
        return replace(
            trouble,
            leases=[lease for lease in trouble.leases if leases.get(lease.lease_id, enough_s) >= enough_s],
            borrowed=[
                slot for slot in borrowed if slot.is_late and slots[slot.reservation_id] >= min(slot.ttl_s, enough_s)
            ],
            reservations=[id_ for id_ in trouble.reservations if reservations.get(id_, enough_s) >= enough_s],
            silent_workers=[worker_id for worker_id, seen_s in workers.items() if seen_s >= enough_s],
        )

    async def _kill_processes(self, run_ids: list[str]) -> None:
        """Ends what runs have left on this machine, before others may have their slots."""
        try:
            async with asyncio.timeout(KILL_WITHIN_S):
                killed = await in_own_thread(lambda: kill_marked(run_ids), name="holdbeat-kill")
        except TimeoutError:
            log.warning("recovery goes on, though not all processes of %d lost runs could be looked for", len(run_ids))
            return
        if killed:
            log.warning(
                "recovery killed %s that lost runs had left on this machine",
                "a process" if killed == 1 else f"{killed} processes",
            )

    async def recover(self, dead: frozenset[str] = frozenset(), *, thorough: bool = True) -> int:
        """Repairs everything that can be found now. Returns how many things were repaired."""
        if standing := await self.store.read(end_standing_sessions):
            log.warning(
                "recovery ended %s of processes that stand still with their locks", counted(standing, "session")
            )
        trouble = await self.store.read(find_trouble, self._terms, dead, thorough=thorough)
        late = await self.store.read(late_reservations, trouble.reservations, dead) if trouble.reservations else set()
        trouble = await self._late_for_long(trouble, await self.store.read(borrowed_slots), late)
        if trouble.leases:
            await self._kill_processes([lease.lease_id for lease in trouble.leases])
        repaired = 0
        still_there = set(trouble.workers)
        for verb, arguments in recovery_units(trouble):
            try:
                if await self.store.write(verb, *arguments):
                    repaired += verb not in (end_silent_worker, expire_jobs)  # which repair nothing
                    if verb is stop_dead_worker:
                        still_there.discard(str(arguments[0]))
            except (StoreRefused, Unavailable):
                raise
            except Exception:
                log.exception("recovery of %s failed; it is left for the next round", arguments[:1])
        for worker_id in dead - still_there:
            self.store.withdraw_alive(worker_id)
        if repaired:
            log.warning("recovery repaired %d", repaired)
        return repaired
