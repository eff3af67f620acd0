"""Turns: in which order partitions of one priority are served.

Guards LIM-07: the next partition by name has its turn, and after the last the first, whatever the length of their
queues. In its turn a partition has as many starts as it weighs, or one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turn:
    """Where the turns of a limit stand."""

    last: str = ""
    """The partition that was served last; without a name: jobs that have none, or nobody yet."""
    taken: int = 0
    """The starts that it has had in its turn."""
    weights: Mapping[str, int] = field(default_factory=dict)

    def weight(self, partition: str) -> int:
        return self.weights.get(partition, 1)

    @property
    def goes_on(self) -> bool:
        """Whether the turn of the partition that was served last is not over."""
        return 0 < self.taken < self.weight(self.last)

    def rank(self, partition: str) -> tuple[int, str]:
        """The place of a partition in the next round: behind the last one by name, then without a name, then before."""
        if partition == self.last and self.goes_on:
            return 0, ""
        if not partition:
            return 2, ""
        return (1 if partition > self.last else 3), partition

    def merged(self, queues: Mapping[str, Sequence[T]]) -> Iterator[T]:
        """The entries of the queues of partitions, in the order of their turns."""
        left = {partition: iter(queues[partition]) for partition in sorted(queues, key=self.rank)}
        if self.goes_on and self.last in left:
            queue = left.pop(self.last)
            yield from islice(queue, self.weight(self.last) - self.taken)
            left[self.last] = queue
        while left:
            for partition in list(left):
                served = list(islice(left[partition], self.weight(partition)))
                yield from served
                if len(served) < self.weight(partition):
                    del left[partition]

    def after(self, served: Iterable[str]) -> Turn:
        """Where the turns stand after starts of these partitions, in this order."""
        last, in_a_row = self.last, self.taken
        for partition in served:
            is_same = partition == last and in_a_row < self.weight(partition)
            last, in_a_row = partition, in_a_row + 1 if is_same else 1
        return replace(self, last=last, taken=in_a_row)
