"""ZombieRecovery: finds work whose worker is gone, and lets it end the ordinary way.

Guards REC-01…05: at start and continuously; each case is a unit of work of its own that looks again under the lock,
so that several recoverers act once and one failure leaves the others.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import datetime
from typing import ClassVar

from holdbeat.domain.errors import StoreRefused, Unavailable
from holdbeat.domain.lease import LeaseTerms
from holdbeat.domain.run import ErrorKind
from holdbeat.engine.service import Service
from holdbeat.handlers.marked_processes import kill_marked
from holdbeat.handlers.threads import in_own_thread
from holdbeat.observe.wording import counted
from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.jobs.expiry import expire_jobs
from holdbeat.store.postgres.sessions import end_standing_sessions
from holdbeat.store.recovery.recover import (
    BorrowedSlot,
    SilentLease,
    borrowed_slots,
    end_silent_worker,
    find_trouble,
    recovery_units,
    stop_dead_worker,
)
from holdbeat.store.running.reservations import late_reservations

log = logging.getLogger("holdbeat.engine")

DEATH_WATCH_S = 1.0
"""How often the kernel is asked for dead workers, where it can tell."""
KILL_WITHIN_S = 2.0
"""How long recovery looks for processes of lost runs before it gives their slots away all the same."""
THOROUGH_S = 300.0
"""How often states are looked for that only a hand can have written."""


class ZombieRecovery(Service):
    name: ClassVar[str] = "zombie-recovery"

    def __init__(self, store: PersistenceAdapter, terms: LeaseTerms, recover_s: float) -> None:
        super().__init__(store, min(recover_s, DEATH_WATCH_S))
        self._terms = terms
        self._recover_s = recover_s
        self._looked_at: float | None = None
        self._thorough_at: float | None = None
        self._late: dict[str, tuple[datetime, float]] = {}
        """Leases seen late: their last heartbeat, and since when on the monotonic clock."""
        self._late_reservations: dict[str, float] = {}
        self._unextended: dict[str, tuple[datetime, float]] = {}
        """Borrowed slots: when each was extended last, and since when we have seen it so."""
        self._silent_workers: dict[str, float] = {}

    async def step(self) -> int:
        """A full look if it is time for one, or if somebody has died; else nothing."""
        now = self.store.clock.monotonic()
        dead = self.store.known_dead()
        if not dead and self._looked_at is not None and now - self._looked_at < self._recover_s:
            return 0
        self._looked_at = now
        is_thorough = self._thorough_at is None or now - self._thorough_at >= THOROUGH_S
        repaired = await self.recover(dead, thorough=is_thorough)
        if is_thorough:
            self._thorough_at = now
        return repaired

    def _silent_for_long(self, leases: list[SilentLease]) -> list[SilentLease]:
        """Leaves out leases that may be late only because the wall clock jumped, ours or the database's (LEASE-06).

        A worker that lives beats within `heartbeat_s`, whatever the wall clock says. So a lease counts as lost once
        it was seen late, unchanged, for that long on the monotonic clock.
        """
        now = self.store.clock.monotonic()
        lost = {lease.lease_id: lease for lease in leases if lease.kind is ErrorKind.LOST}
        seen, self._late = self._late, {}
        for lease_id, lease in lost.items():
            before = seen.get(lease_id)
            is_same = before is not None and before[0] == lease.heartbeat_at
            self._late[lease_id] = before if before is not None and is_same else (lease.heartbeat_at, now)
        return [
            lease
            for lease in leases
            if lease.lease_id not in lost or now - self._late[lease.lease_id][1] >= self._terms.heartbeat_s
        ]

    def _unextended_for_long(self, borrowed: list[BorrowedSlot]) -> list[BorrowedSlot]:
        """The same for borrowed slots: late by the wall clock, and seen unchanged for their whole time on ours."""
        now = self.store.clock.monotonic()
        seen, self._unextended = self._unextended, {}
        lost = []
        for slot in borrowed:
            extended_at, since = seen.get(slot.reservation_id, (None, now))
            since = since if extended_at == slot.extended_at else now
            self._unextended[slot.reservation_id] = (slot.extended_at, since)
            if slot.is_late and now - since >= min(slot.ttl_s, self._terms.heartbeat_s):
                lost.append(slot)
        return lost

    def _late_for_long(self, reservations: list[str], late: set[str]) -> list[str]:
        """The same for direct requests whose owner has not ended: it extends them within that time if it lives."""
        now = self.store.clock.monotonic()
        self._late_reservations = {one: self._late_reservations.get(one, now) for one in late}
        return [
            one
            for one in reservations
            if one not in late or now - self._late_reservations[one] >= self._terms.heartbeat_s
        ]

    def _workers_silent_for_long(self, workers: list[str]) -> list[str]:
        """The same for workers without leases."""
        now = self.store.clock.monotonic()
        self._silent_workers = {worker_id: self._silent_workers.get(worker_id, now) for worker_id in workers}
        return [
            worker_id for worker_id, since in self._silent_workers.items() if now - since >= self._terms.heartbeat_s
        ]

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
        trouble = replace(
            trouble,
            leases=self._silent_for_long(trouble.leases),
            borrowed=self._unextended_for_long(await self.store.read(borrowed_slots)),
            reservations=self._late_for_long(trouble.reservations, late),
            silent_workers=self._workers_silent_for_long(trouble.silent_workers),
        )
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
