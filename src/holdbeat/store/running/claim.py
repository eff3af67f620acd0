"""Claim: the next work for a worker's free slots, in one transaction.

Guards INV-004, CAP-02 and DEC-004: order, limits over all workers, and direct requests ahead of the queue. A claim
writes RUNNING, the run and the lease together, so there is nothing in between to be lost.
"""

from __future__ import annotations

from holdbeat.domain.lease import Claim
from holdbeat.store.running.candidates import choose
from holdbeat.store.running.capacity import count_capacity, serve
from holdbeat.store.running.lanes import outlook
from holdbeat.store.running.start import grant, start
from holdbeat.store.running.vacancy import FreeSlots
from holdbeat.store.running.vacancy import Vacancy as Vacancy
from holdbeat.store.transaction import Transaction


def claim(tx: Transaction, vacancy: Vacancy) -> list[Claim]:
    """Fills the free slots of one worker.

    - Waiting direct requests first, in the order they came, each with the next free slot of its pool.
    - Then jobs by (priority DESC, position, created_at, id) among those that may run now: not delayed, gate open,
      resource neither full nor paused, type known to this worker; and only while free slots outnumber the
      direct requests of their pool that still wait, whoever may serve those.
    - Limits count the live leases, under a lock that no other claim of the same pool can hold.
    """
    limits, lanes, waiting = outlook(tx, vacancy)
    if not lanes and not waiting:
        return []
    capacity, waiting = count_capacity(tx, limits, lanes, waiting)
    free_slots = FreeSlots(vacancy)
    served = serve(limits, vacancy, waiting, capacity, free_slots) if waiting else []
    chosen = choose(tx, lanes, capacity, free_slots)
    claims = grant(tx, vacancy, served, tx.next_fences(len(served))) if served else []
    return claims + start(tx, vacancy, chosen) if chosen.candidates else claims
