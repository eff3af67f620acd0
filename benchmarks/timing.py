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


def interleaved(variants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of each variant over rounds in which all of them take their turn.

    A machine that is busy for a while then slows all of them alike, and their ratios stay honest.
    """
    found: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds):
        for name, measure in variants.items():
            found[name].append(measure())
        progress(f"  round {number + 1}: " + ", ".join(f"{name} {figures[-1]:,.0f}" for name, figures in found.items()))
    return {name: statistics.median(figures) for name, figures in found.items()}
