"""Claim: the next work for a worker's free slots, in one transaction.

Guards INV-004, CAP-02 and DEC-004: order, limits over all workers, and direct requests ahead of the queue. A claim
writes RUNNING, the run and the lease together, so there is nothing in between to be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdbeat.domain.capacity import Capacity
from holdbeat.domain.lease import Claim
from holdbeat.domain.limit import Limits
from holdbeat.domain.reservation import Reservation
from holdbeat.store.limits.rates import instant_of, keep_rates
from holdbeat.store.limits.starvation import keep_streaks, queue_turns
from holdbeat.store.limits.throttles import throttles_in_force
from holdbeat.store.limits.usage import SlotNumbers
from holdbeat.store.running.candidates import Choice, Chosen
from holdbeat.store.running.capacity import count_capacity, serve
from holdbeat.store.running.lanes import Lane, lanes_with_workers, read_queue_state
from holdbeat.store.running.preference import count_switches
from holdbeat.store.running.start import grant, start
from holdbeat.store.running.vacancy import FreeSlots
from holdbeat.store.running.vacancy import Vacancy as Vacancy
from holdbeat.store.transaction import Transaction

NOBODY = Vacancy("", ())
"""The vacancy of a process that takes on no work: it only gives free slots to reservations that need no worker."""


@dataclass(slots=True)
class Filled:
    claims: list[Claim]
    next_ready_at: datetime | None = None
    """When the first delayed job will be ready, a rate permits the next start of a job that waits for it alone, or a
    claim looks for jobs before the floor of a lane."""


def claim(tx: Transaction, vacancy: Vacancy) -> list[Claim]:
    """The claims that `fill` hands out."""
    return fill(tx, vacancy).claims


def fill(tx: Transaction, vacancy: Vacancy) -> Filled:
    """Fills the free slots of one worker.

    - Waiting reservations first, in the order they came, each with the next free slot of its pool; but after
      `direct_burst` of them in a row one job. Those that need no worker (borrowed slots, requests through gates) get
      theirs from whichever claim sees the slot free.
    - Then jobs by (priority DESC, position, created_at, id) among those that may run now: not delayed, gate open,
      resource neither full nor paused, type known to this worker; and only while free slots outnumber the
      reservations of their pool that still wait, whoever may serve those.
    - Limits count the live leases, and rates the starts, under a lock that no other claim of the same pool can hold.
      Slot and rate are decided together: nothing holds one while it waits for the other.
    """
    state = read_queue_state(tx, vacancy)
    limits, lanes = state.limits, state.lanes
    if not lanes and not state.waiting:
        return Filled([], state.next_check_at)
    waiting = state.waiting
    if tx.terms.direct_burst and waiting and not vacancy.types:
        waiting = _without_queue_turns(tx, limits, waiting)
    capacity, numbers, waiting = count_capacity(tx, limits, lanes, waiting)
    if state.is_throttled:
        capacity.learn_throttles(throttles_in_force(tx))
    choice = Choice(
        tx, limits, capacity, FreeSlots(vacancy), vacancy, has_heavy=state.has_heavy, entries_read=state.entries_read
    )
    claims = []
    if (
        tx.terms.direct_burst
        and waiting
        and (due := queue_turns(tx, limits, lanes, [_kind(reservation) for reservation in waiting]))
    ):
        capacity.give_queue_turns(due)
        first = [lane for lane in lanes if any(pool.key in due for pool in limits.covering(*lane))]
        claims = _start_chosen(tx, vacancy, choice.of(first), numbers)
        capacity.give_queue_turns(())
    served = serve(vacancy, waiting, capacity, choice.free_slots) if waiting else []
    chosen = choice.of(lanes)
    keep_rates(tx, capacity)
    if served:
        claims += grant(tx, vacancy, served, tx.next_fences(len(served)), numbers)
    claims += _start_chosen(tx, vacancy, chosen, numbers)
    if claims and tx.terms.lease_floors is not None:
        tx.terms.lease_floors.note(claims[-1].lease.fence)
    count_switches(tx, vacancy, claims)
    if tx.terms.direct_burst and (claims or served):
        started = [(claim.lease.resource, claim.lease.type) for claim in claims if claim.job is not None]
        keep_streaks(tx, limits, [_kind(reservation) for reservation, _ in served], started)
    instants = [state.next_check_at, _next_start(tx, capacity, lanes, waiting), choice.head_due_at]
    return Filled(claims, min((at for at in instants if at is not None), default=None))


def _without_queue_turns(tx: Transaction, limits: Limits, waiting: list[Reservation]) -> list[Reservation]:
    """Leaves out reservations whose pool owes its next slot to a job: a worker's claim gives it that."""
    due = queue_turns(tx, limits, lanes_with_workers(tx), [_kind(request) for request in waiting])
    return [request for request in waiting if due.isdisjoint(pool.key for pool in limits.covering(*_kind(request)))]


def _start_chosen(tx: Transaction, vacancy: Vacancy, chosen: Chosen, numbers: SlotNumbers) -> list[Claim]:
    return start(tx, vacancy, chosen, numbers) if chosen.candidates else []


def _kind(reservation: Reservation) -> tuple[str, str]:
    return reservation.resource, reservation.type


def _next_start(tx: Transaction, capacity: Capacity, lanes: list[Lane], waiting: list[Reservation]) -> datetime | None:
    kinds = {(lane.resource, lane.type) for lane in lanes} | {
        (reservation.resource, reservation.type) for reservation in waiting
    }
    starts = [at for at in (capacity.next_permitted(*kind) for kind in kinds) if at is not None]
    return instant_of(tx, min(starts)) if starts else None
