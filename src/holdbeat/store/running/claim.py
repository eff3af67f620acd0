"""Claim: the next work for a worker's free slots, in one transaction.

Guards INV-004, CAP-02 and DEC-004: order, limits over all workers, and direct requests ahead of the queue. A claim
writes RUNNING, the run and the lease together, so there is nothing in between to be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdbeat.domain.capacity import Capacity
from holdbeat.domain.lease import Claim
from holdbeat.domain.reservation import Reservation
from holdbeat.store.limits.rates import instant_of, keep_rates
from holdbeat.store.running.candidates import choose
from holdbeat.store.running.capacity import count_capacity, serve
from holdbeat.store.running.lanes import Lane, outlook
from holdbeat.store.running.start import grant, start
from holdbeat.store.running.vacancy import FreeSlots
from holdbeat.store.running.vacancy import Vacancy as Vacancy
from holdbeat.store.transaction import Transaction

NOBODY = Vacancy("", ())
"""The vacancy of a process that takes on no work: it only gives free slots to reservations that need no worker."""


@dataclass(slots=True)
class Filled:
    claims: list[Claim]
    next_start_at: datetime | None = None
    """When a rate permits the next start of a job that waits for it alone; None if none does."""


def claim(tx: Transaction, vacancy: Vacancy) -> list[Claim]:
    """What `fill` hands out."""
    return fill(tx, vacancy).claims


def fill(tx: Transaction, vacancy: Vacancy) -> Filled:
    """Fills the free slots of one worker.

    - Waiting reservations first, in the order they came, each with the next free slot of its pool. Those that need no
      worker (borrowed slots, requests through gates) get theirs from whichever claim sees the slot free.
    - Then jobs by (priority DESC, position, created_at, id) among those that may run now: not delayed, gate open,
      resource neither full nor paused, type known to this worker; and only while free slots outnumber the
      reservations of their pool that still wait, whoever may serve those.
    - Limits count the live leases, and rates the starts, under a lock that no other claim of the same pool can hold.
      Slot and rate are decided together: nothing holds one while it waits for the other.
    """
    limits, lanes, waiting = outlook(tx, vacancy)
    if not lanes and not waiting:
        return Filled([])
    capacity, numbers, waiting = count_capacity(tx, limits, lanes, waiting)
    free_slots = FreeSlots(vacancy)
    served = serve(vacancy, waiting, capacity, free_slots) if waiting else []
    chosen = choose(tx, limits, lanes, capacity, free_slots)
    keep_rates(tx, capacity)
    claims = grant(tx, vacancy, served, tx.next_fences(len(served)), numbers) if served else []
    if chosen.candidates:
        claims += start(tx, vacancy, chosen, numbers)
    return Filled(claims, _next_start(tx, capacity, lanes, waiting))


def _next_start(tx: Transaction, capacity: Capacity, lanes: list[Lane], waiting: list[Reservation]) -> datetime | None:
    kinds = {(lane.resource, lane.type) for lane in lanes} | {(each.resource, each.type) for each in waiting}
    starts = [at for at in (capacity.next_permitted(*kind) for kind in kinds) if at is not None]
    return instant_of(tx, min(starts)) if starts else None
