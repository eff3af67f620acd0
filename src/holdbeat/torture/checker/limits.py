"""Checks about what was under way at one moment: limits, and the order of sequential groups."""

from __future__ import annotations

import math
from collections.abc import Iterator

from holdbeat.torture.checker.history import History, Violation
from holdbeat.torture.checker.intervals import Interval, intervals


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
    """In a sequential group no member executes before all attempts of the members before it have ended."""
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
