"""When handlers were physically at work: from what they wrote themselves, not from leases."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from holdbeat.torture.checker.history import History


@dataclass(frozen=True, slots=True)
class Interval:
    """One stretch in which a handler executed, by the shared monotonic clock."""

    run: str
    job: str | None
    resource: str
    since: float
    until: float


def intervals(history: History) -> list[Interval]:
    """Every stretch of every run that a handler saw begin.

    A run without an end lasts until its last tick, or else until its process was killed, or else for ever. While a
    process is stopped it executes nothing, so a stop cuts a run into two stretches; of these the one after the stop
    counts if it lasts longer than `thaw_s`.
    """
    last_tick: dict[str, float] = {}
    for row in history.ticks:
        last_tick[row["run"]] = max(last_tick.get(row["run"], -math.inf), row["monotonic"])
    deaths = {row["process"]: row["monotonic"] for row in history.deaths}
    stops: dict[object, list[tuple[float, float]]] = {}
    for row in history.frozen:
        stops.setdefault(row["process"], []).append((row["since"], row["until"]))
    stretches = []
    for row in history.starts:
        since, run_id = row["monotonic"], row["run"]
        end = history.end_of.get(run_id)
        if end is not None:
            until = end["monotonic"]
        elif run_id in last_tick:
            until = last_tick[run_id]
        else:
            until = max(since, deaths.get(row["process"], math.inf))
        for first, last in _without(since, until, stops.get(row["process"], [])):
            if first > since and last - first <= history.thaw_s:
                continue
            stretches.append(Interval(run_id, row["job"], row["resource"], first, last))
    return stretches


def _without(since: float, until: float, stops: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    for first, last in sorted(stops):
        if last <= since or first >= until:
            continue
        if first > since:
            yield since, first
        since = max(since, last)
    if since <= until:
        yield since, until
