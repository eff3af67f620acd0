"""The slots that are free in each pool, and the reservations that come before the queue.

Guards CAP-02 and DIR-01: leases are counted under a lock that no other claim of the same pool can hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdbeat.domain.capacity import Capacity, Place, Usage
from holdbeat.domain.limit import Limits
from holdbeat.domain.reservation import Reservation
from holdbeat.store.limits.rates import rates_of
from holdbeat.store.limits.usage import SlotNumbers, counted_leases
from holdbeat.store.reads.rows import RESERVATIONS
from holdbeat.store.running.vacancy import FreeSlots, Vacancy
from holdbeat.store.transaction import Transaction

WAITING = "WHERE status = 'ACTIVE' AND granted_at IS NULL"


def waiting_reservations(tx: Transaction) -> list[Reservation]:
    return RESERVATIONS.all(tx, f"{WAITING} AND expires_at > :now ORDER BY requested_at, id", now=tx.now)


def count_capacity(
    tx: Transaction, limits: Limits, lanes: Iterable[tuple[str, str]], waiting: list[Reservation]
) -> tuple[Capacity, SlotNumbers, list[Reservation]]:
    """The capacity of the pools of these lanes and requests, locked, their free slot numbers, and the requests that
    still wait by then."""
    kinds = {*lanes, *((reservation.resource, reservation.type) for reservation in waiting)}
    by_key = {pool.key: pool for resource, type_ in kinds for pool in limits.covering(resource, type_)}
    pools = by_key.values()
    if not pools:
        return Capacity(limits, ()), SlotNumbers(limits, ()), waiting
    tx.lock_pools({f"limit:{key}" for key in by_key})
    if waiting and tx.dialect == "postgres":
        # Another claim may have granted one before we had the lock: it would seem to stand ahead of the others. One
        # that came since may be of a pool that is not locked, and is the next claim's.
        known = {reservation.id for reservation in waiting}
        waiting = [reservation for reservation in waiting_reservations(tx) if reservation.id in known]
    leases, numbers = counted_leases(tx, limits, by_key, by_partition=any(pool.limit.per_partition for pool in pools))
    capacity = Capacity(
        limits,
        leases,
        [Usage(r.resource, r.type, 1, r.partition, r.weight) for r in waiting],
        now=tx.now.timestamp(),
    )
    rated = {pool.key for pool in pools if pool.limit.rate is not None}
    if rated:
        capacity.learn_rates(rates_of(tx, rated, {"", *(r.partition for r in waiting)}))
    return capacity, numbers, waiting


def serve(
    vacancy: Vacancy, waiting: list[Reservation], capacity: Capacity, free_slots: FreeSlots
) -> list[tuple[Reservation, int | None]]:
    """The reservations that get their slot now: direct requests each with a slot of this worker that will serve it,
    the others without one, because whoever asked does the work.

    The next free slots of a pool belong to those who came first, whoever may serve them (DIR-01).
    """
    served: list[tuple[Reservation, int | None]] = []
    ahead: Counter[Place] = Counter()
    for reservation in waiting:
        resource, type_ = reservation.resource, reservation.type
        slots = free_slots.of(resource)
        can_serve = not reservation.is_direct or (type_ in vacancy.types and vacancy.permits(resource) and bool(slots))
        kind = (resource, type_, reservation.partition, reservation.weight)
        free = capacity.free_behind(resource, type_, ahead, reservation.partition, reservation.weight)
        if can_serve and free != 0:
            capacity.grant(*kind)
            served.append((reservation, slots.pop() if reservation.is_direct else None))
        else:
            ahead.update(capacity.demand(*kind))
    return served
