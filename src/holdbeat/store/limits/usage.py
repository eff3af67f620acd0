"""The live leases, counted: what limits go by (CAP-01), and which slot numbers are taken (LIM-10)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from heapq import heapify, heappop

from holdbeat.domain.capacity import Usage
from holdbeat.domain.limit import Limits
from holdbeat.store.transaction import Transaction

_FROM_BEGINNING_AFTER = timedelta(seconds=5)
_NUMBERS = {
    "sqlite": "group_concat(coalesce(numbers, number))",
    "postgres": "string_agg(coalesce(numbers, number::text), ',')",
}


class SlotNumbers:
    """The free slot numbers of each resource that has a limit by the resource alone, as a claim hands them out."""

    def __init__(self, limits: Limits, taken: Iterable[tuple[str, str | None]]) -> None:
        self._limits = limits
        self._taken: dict[str, set[int]] = {}
        self._free: dict[str, list[int]] = {}
        for resource, numbers in taken:
            if numbers:
                self._taken.setdefault(resource, set()).update(map(int, numbers.split(",")))

    def take(self, resource: str, weight: int = 1) -> tuple[int, ...]:
        """The lowest free numbers, as many as it weighs; none without a limit. The caller has locked the limit."""
        if resource not in self._free:
            slots = self._limits.own_slots_of(resource)
            used = self._taken.get(resource, set())
            # Not all of them: a limit may have a million slots.
            most = 0 if slots is None else min(slots, len(used) + 4096)
            self._free[resource] = [number for number in range(most) if number not in used]
            heapify(self._free[resource])
        free = self._free[resource]
        if not free:
            return ()
        return tuple(heappop(free) for _ in range(min(weight, len(free))))


def usage(tx: Transaction) -> list[Usage]:
    """How many leases there are of each resource, type and partition."""
    rows = tx.rows(
        "SELECT resource, type, count(*), partition, sum(weight) FROM leases GROUP BY resource, type, partition"
    )
    return [Usage(*row) for row in rows]


class LeaseFloors:
    """The lowest fence that a lease of each limit may have (PostgreSQL), as the claims of a process saw them.

    While somebody's snapshot stays open the server keeps the rows of all leases that were released since, and a count
    from the beginning would read them all. A claim has the locks of the limits that it counts for, and a lease gets its
    fence under the same locks: so those that come later have higher ones. A limit that was changed meanwhile may cover
    leases that came without its lock; they are found by a count from the beginning, after 5 s at most.
    """

    __slots__ = ("_from_beginning_at", "_highest", "_limits", "_lowest")

    def __init__(self) -> None:
        self._limits: Limits | None = None
        self._lowest: dict[str, int] = {}
        self._highest = 0
        self._from_beginning_at: datetime | None = None

    def of(self, limits: Limits, pools: Iterable[str], now: datetime) -> int:
        """The fence from which to count leases for these pools."""
        if self._limits is not limits or self._from_beginning_at is None or self._from_beginning_at <= now:
            self._limits, self._from_beginning_at = limits, now + _FROM_BEGINNING_AFTER
            self._lowest.clear()
        return min((self._lowest.get(pool, 0) for pool in pools), default=0)

    def note(self, fence: int) -> None:
        """Takes note of a fence that was given out: leases that come later have higher ones."""
        self._highest = max(self._highest, fence)

    def keep(self, limits: Limits, pools: Iterable[str], counted: Iterable[tuple[str, str, int, int]]) -> None:
        """Takes note of what was counted: resource, type, lowest and highest fence."""
        lowest: dict[str, int] = {}
        for resource, type_, low, high in counted:
            self.note(high)
            for pool in limits.covering(resource, type_):
                lowest[pool.key] = min(low, lowest.get(pool.key, low))
        for key in pools:
            self._lowest[key] = lowest.get(key, self._highest)


def counted_leases(
    tx: Transaction, limits: Limits, pools: Collection[str], *, by_partition: bool
) -> tuple[list[Usage], SlotNumbers]:
    """The same for a claim that has locked these pools, by partition only if a limit counts by it, and the numbers of
    the slots that are held."""
    partition, group = ("partition", ", partition") if by_partition else ("''", "")
    selected = f"SELECT resource, type, count(*), {partition}, sum(weight), {_NUMBERS[tx.dialect]}"
    grouped = f"GROUP BY resource, type{group}"
    if tx.dialect == "sqlite":
        rows = tx.rows(f"{selected} FROM leases {grouped}")
    else:
        floors = tx.terms.lease_floors = tx.terms.lease_floors or LeaseFloors()
        rows = tx.rows(
            f"{selected}, min(fence), max(fence) FROM leases WHERE fence >= :floor {grouped}",
            floor=floors.of(limits, pools, tx.now),
        )
        floors.keep(limits, pools, [(row[0], row[1], row[6], row[7]) for row in rows])
    return [Usage(*row[:5]) for row in rows], SlotNumbers(limits, [(row[0], row[5]) for row in rows])
