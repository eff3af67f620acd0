"""Checks about what was under way at one moment, by what handlers wrote themselves: limits, and the order of groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from holdbeat.torture.checker.history import History, Violation


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


def limits_hold(history: History) -> Iterator[Violation]:
    """At no moment did more handlers of a resource execute than its limit allows. Nothing is excused."""
    by_resource: dict[str, list[Interval]] = {}
    for stretch in intervals(history):
        by_resource.setdefault(stretch.resource, []).append(stretch)
    for resource, limit in history.limits.items():
        stretches = by_resource.get(resource, [])
        # At one instant ends come first: a slot may be used again at once.
        edges = sorted(
            [(stretch.since, 1, stretch.run) for stretch in stretches]
            + [(stretch.until, 0, stretch.run) for stretch in stretches if stretch.until > stretch.since]
            + [(math.nextafter(stretch.until, math.inf), 0, stretch.run) for stretch in stretches
               if stretch.until <= stretch.since]
        )  # fmt: skip
        under_way: set[str] = set()
        for at, is_start, run_id in edges:
            if not is_start:
                under_way.discard(run_id)
                continue
            under_way.add(run_id)
            if len(under_way) > limit:
                runs = ", ".join(sorted(under_way))
                sentence = f"{len(under_way)} runs on {resource} (limit {limit}) at {at:.3f}: {runs}"
                yield Violation("limit", resource, sentence)


def groups_run_in_order(history: History) -> Iterator[Violation]:
    """Members of a sequential group execute only after all attempts of the members before them have ended."""
    sequential = {group["id"] for group in history.groups if group["mode"] == "sequential"}
    members: dict[str, list[tuple[int, Interval]]] = {}
    for stretch in intervals(history):
        job = history.job.get(stretch.job) if stretch.job is not None else None
        if job is not None and job["group_id"] in sequential:
            members.setdefault(job["group_id"], []).append((job["sequence"], stretch))
    for group_id, stretches in members.items():
        stretches.sort(key=lambda entry: (entry[0], entry[1].since, entry[1].run))
        last, last_run, in_hand, in_hand_run, at = -math.inf, "", -math.inf, "", None
        for sequence, stretch in stretches:
            if sequence != at:
                if in_hand > last:
                    last, last_run = in_hand, in_hand_run
                at = sequence
            if stretch.since < last:
                sentence = f"in group {group_id} run {stretch.run} (member {sequence}) executed before {last_run} ended"
                yield Violation("order", group_id, sentence)
            if stretch.until > in_hand:
                in_hand, in_hand_run = stretch.until, stretch.run
