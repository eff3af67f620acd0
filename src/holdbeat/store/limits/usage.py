"""The live leases, counted: what limits go by (CAP-01), and which slot numbers are taken (LIM-10)."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop

from holdbeat.domain.capacity import Usage
from holdbeat.domain.limit import Limits
from holdbeat.store.transaction import Transaction

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
            taken = self._taken.get(resource, set())
            # Not all of them: a limit may have a million slots.
            most = 0 if slots is None else min(slots, len(taken) + 4096)
            self._free[resource] = [number for number in range(most) if number not in taken]
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


def counted_leases(tx: Transaction, limits: Limits, *, by_partition: bool) -> tuple[list[Usage], SlotNumbers]:
    """The same for a claim, by partition only if a limit counts by it, and the numbers of the slots that are held."""
    partition, group = ("partition", ", partition") if by_partition else ("''", "")
    rows = tx.rows(
        f"SELECT resource, type, count(*), {partition}, sum(weight), {_NUMBERS[tx.dialect]} "
        f"FROM leases GROUP BY resource, type{group}"
    )
    return [Usage(*row[:5]) for row in rows], SlotNumbers(limits, [(row[0], row[5]) for row in rows])
