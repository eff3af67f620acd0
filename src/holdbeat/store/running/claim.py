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
from holdbeat.store.limits.direct_streaks import keep_streaks, queue_turns
from holdbeat.store.limits.rates import instant_of, keep_rates
from holdbeat.store.limits.throttles import throttles_in_force
from holdbeat.store.limits.usage import SlotNumbers
from holdbeat.store.running.candidates import Chosen, choose
from holdbeat.store.running.capacity import count_capacity, serve
from holdbeat.store.running.lanes import Lane, outlook
from holdbeat.store.running.start import grant, start
from holdbeat.store.running.vacancy import FreeSlots
from holdbeat.store.running.vacancy import Vacancy as Vacancy
from holdbeat.store.transaction import Transaction


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

    - Waiting direct requests first, in the order they came, each with the next free slot of its pool; but after
      `direct_burst` of them in a row one job.
    - Then jobs by (priority DESC, position, created_at, id) among those that may run now: not delayed, gate open,
      resource neither full nor paused, type known to this worker; and only while free slots outnumber the
      direct requests of their pool that still wait, whoever may serve those.
    - Limits count the live leases, and rates the starts, under a lock that no other claim of the same pool can hold.
      Slot and rate are decided together: nothing holds one while it waits for the other.
    """
    limits, lanes, waiting, is_throttled = outlook(tx, vacancy)
    if not lanes and not waiting:
        return Filled([])
    capacity, numbers, waiting = count_capacity(tx, limits, lanes, waiting)
    if is_throttled:
        capacity.learn_throttles(throttles_in_force(tx))
    free_slots = FreeSlots(vacancy)
    claims = []
    if tx.terms.direct_burst and waiting and (due := queue_turns(tx, limits, lanes, [_kind(each) for each in waiting])):
        capacity.give_queue_turns(due)
        first = [lane for lane in lanes if any(pool.key in due for pool in limits.covering(*lane))]
        claims = _start_chosen(tx, vacancy, choose(tx, limits, first, capacity, free_slots), numbers)
        capacity.give_queue_turns(())
    served = serve(vacancy, waiting, capacity, free_slots) if waiting else []
    chosen = choose(tx, limits, lanes, capacity, free_slots)
    keep_rates(tx, capacity)
    if served:
        claims += grant(tx, vacancy, served, tx.next_fences(len(served)), numbers)
    claims += _start_chosen(tx, vacancy, chosen, numbers)
    if tx.terms.direct_burst and claims:
        started = [(claim.lease.resource, claim.lease.type) for claim in claims if claim.job is not None]
        keep_streaks(tx, limits, [_kind(each) for each, _ in served], started)
    return Filled(claims, _next_start(tx, capacity, lanes, waiting))


def _start_chosen(tx: Transaction, vacancy: Vacancy, chosen: Chosen, numbers: SlotNumbers) -> list[Claim]:
    return start(tx, vacancy, chosen, numbers) if chosen.candidates else []


def _kind(reservation: Reservation) -> tuple[str, str]:
    return reservation.resource, reservation.type


def _next_start(tx: Transaction, capacity: Capacity, lanes: list[Lane], waiting: list[Reservation]) -> datetime | None:
    kinds = {(lane.resource, lane.type) for lane in lanes} | {(each.resource, each.type) for each in waiting}
    starts = [at for at in (capacity.next_permitted(*kind) for kind in kinds) if at is not None]
    return instant_of(tx, min(starts)) if starts else None
