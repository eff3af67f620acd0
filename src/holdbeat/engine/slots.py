"""Slots: which of a worker's slots are free.

Ordinary slots are numbered from 0 upwards, those of the lane for http calls from -1 downwards. Only this module knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class FreeSlots(NamedTuple):
    """Numbers of free slots, as a claim offers them to the store."""

    ordinary: list[int]
    http: list[int]


class Slots:
    def __init__(self, ordinary: int, http: int) -> None:
        self._ordinary = list(range(ordinary))
        self._http = [-1 - number for number in range(http)]
        self.uses: Counter[int] = Counter()
        """How many claims of each slot are known. One whose answer was lost is not: then the store refuses the next one
        for the same slot, which has as many uses before it."""

    @property
    def any_free(self) -> bool:
        return bool(self._ordinary or self._http)

    @property
    def count_ordinary_free(self) -> int:
        """Without the many slots for http calls: they are mostly free, and a cycle for them alone claims nothing."""
        return len(self._ordinary)

    @property
    def free(self) -> list[int]:
        """The numbers of all free slots."""
        return [*self._ordinary, *self._http]

    def take_all(self) -> FreeSlots:
        """Takes every free slot, to offer it to the store."""
        taken = FreeSlots(self._ordinary, self._http)
        self._ordinary, self._http = [], []
        return taken

    def give_back(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            (self._http if number < 0 else self._ordinary).append(number)

    def give_back_offered(self, ordinary: Sequence[int], http: Sequence[int], kept: set[int]) -> None:
        """Gives back what was offered to the store and is not kept. Mostly the first of them are kept: then the many
        others need not be looked at, which would delay the handlers."""
        unseen = len(kept)
        for free, offered in ((self._ordinary, ordinary), (self._http, http)):
            first = next((index for index, slot in enumerate(offered) if slot not in kept), len(offered))
            unseen -= first
            rest = offered[first:]
            if unseen:
                rest = [slot for slot in rest if slot not in kept]
                unseen -= len(offered) - first - len(rest)
            free.extend(rest)

    def note_used(self, numbers: Iterable[int]) -> None:
        """The store gave out claims for these."""
        self.uses.update(numbers)

    def occupy(self, number: int) -> None:
        """A slot turned out to be held by a claim."""
        for free in (self._ordinary, self._http):
            if number in free:
                free.remove(number)
