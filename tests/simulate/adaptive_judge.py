"""Judges the adaptive schedules of a simulation: one run at a time, within its clamps, and always planned again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from holdbeat.store.transaction import Transaction
from holdbeat.torture.checker import History, Violation

ROUNDING_S = 0.003
ADAPTIVE: dict[str, Any] = {
    "name": "adaptive", "adaptive": True, "interval_s": 700, "min_interval_s": 120, "max_interval_s": 3000,
    "type": "watch", "params": {"seconds": 25},
}  # fmt: skip
"""Its interval follows hints of the operator and failures."""


def judge_adaptive(history: History, schedule: dict[str, Any], planned_at: float | None) -> Iterator[Violation]:
    """`schedule` has id, least and most, the clamps in seconds; `planned_at` is its plan in the end, None if it has
    none and nothing of it is under way."""
    schedule_id = schedule["id"]
    if planned_at is None:
        yield Violation("due", schedule_id, f"the adaptive schedule {schedule_id} was not planned again")
    chains = _chains(history, schedule_id)
    for (first, _), (second, due_at) in pairwise(chains):
        begun = [row["started_at"] for row in first if row["started_at"] is not None]
        ended = [row["finished_at"] for row in first]
        if None in ended:
            yield Violation("due", schedule_id, f"the adaptive schedule {schedule_id} fired beside a run of its own")
            continue
        if not history.wall_is_steady or due_at is None or not begun:
            continue
        if second and min(row["started_at"] for row in second) < max(ended) - ROUNDING_S:
            yield Violation("due", schedule_id, f"the adaptive schedule {schedule_id} ran twice at {due_at:.3f}")
        if due_at < min(begun) + schedule["least"] - ROUNDING_S:
            early = min(begun) + schedule["least"] - due_at
            yield Violation("due", schedule_id, f"the adaptive schedule {schedule_id} was planned {early:.3f} s early")
        if due_at > max(ended) + schedule["most"] + ROUNDING_S:
            late = due_at - max(ended) - schedule["most"]
            yield Violation("due", schedule_id, f"the adaptive schedule {schedule_id} was planned {late:.3f} s late")


def _chains(history: History, schedule_id: str) -> list[tuple[list[Mapping[str, Any]], float | None]]:
    """The runs of each chain of the schedule that has any, and its due time, in the order of the first start."""
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for run in history.runs:
        runs.setdefault(run["job_id"], []).append(run)
    chains = []
    for job in history.jobs:
        if job["schedule_id"] != schedule_id or job["retry_of"] is not None:
            continue
        rows: list[Mapping[str, Any]] = []
        tip: Mapping[str, Any] | None = job
        while tip is not None:
            rows += runs.get(tip["id"], [])
            tip = history.job.get(tip["retried_by"]) if tip["retried_by"] else None
        if rows:
            chains.append((rows, job["scheduled_for"]))
    return sorted(chains, key=lambda chain: min(row["started_at"] for row in chain[0]))


def plan_of(tx: Transaction, schedule_id: str) -> float | None:
    """When a schedule runs next; now if a job of it is under way; None if it never does."""
    row = tx.one("SELECT next_run_at FROM schedules WHERE id = :id", id=schedule_id)
    if row is not None and row[0] is not None:
        return tx.instant(row[0]).timestamp()
    busy = tx.one("SELECT 1 FROM jobs WHERE schedule_id = :id AND status IN ('QUEUED', 'RUNNING')", id=schedule_id)
    return None if busy is None else tx.now.timestamp()
