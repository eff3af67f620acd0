"""How the benchmarks look at the clock, and how they report."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


class Watch:
    elapsed_s = 0.0


@contextmanager
def stopwatch() -> Iterator[Watch]:
    """Measures the block that it surrounds."""
    watch = Watch()
    start = time.perf_counter()
    yield watch
    watch.elapsed_s = time.perf_counter() - start


def progress(text: str) -> None:
    """Tells a person who waits; the results alone go to standard output."""
    print(text, file=sys.stderr, flush=True)


class Rounds:
    """Figures of several variants that took turns.

    A machine that is busy for a while slows all variants of a round alike: so ratios are taken within rounds.
    """

    def __init__(self, variants: Mapping[str, Callable[[], float]], rounds: int) -> None:
        self._found: dict[str, list[float]] = {name: [] for name in variants}
        for number in range(rounds):
            for name, measure in variants.items():
                self._found[name].append(measure())
            output = ", ".join(f"{name} {figures[-1]:,.0f}" for name, figures in self._found.items())
            progress(f"  round {number + 1}: {output}")

    def median(self, name: str) -> int:
        return round(statistics.median(self._found[name]))

    def ratio(self, name: str, to: str) -> float:
        pairs = zip(self._found[name], self._found[to], strict=True)
        return round(statistics.median(one / other for one, other in pairs), 3)
