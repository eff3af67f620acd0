"""Rows of hand-made histories, and ways to spoil them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

POLICY = {"max_attempts": 1, "base_delay_s": 10, "max_delay_s": 3600, "jitter": 0}
Rows = dict[str, Any]
Spoil = Callable[[Rows], None]


def job(job_id: str, status: str = "COMPLETED", **fields: Any) -> dict[str, Any]:
    return {
        "id": job_id, "status": status, "resource": "default", "retry_of": None, "retry_kind": None,
        "retried_by": None, "permanently_failed": False, "retry_policy": POLICY, "attempt": 0, "not_before": None,
        "group_id": None, "sequence": None, "schedule_id": None, "scheduled_for": None, "idempotency_key": None,
        "parent_id": None, "unique_key": None, "unique_while": None, "expires_at": None, **fields,
    }  # fmt: skip


def run(job_id: str, fence: int, since: float, until: float, status: str = "COMPLETED", **fields: Any) -> Rows:
    return {
        "id": f"run-{job_id}", "job_id": job_id, "fence": fence, "status": status, "error_kind": None,
        "started_at": since, "finished_at": until, **fields,
    }  # fmt: skip


def start(job_id: str, fence: int, at: float, process: str = "p1", **fields: Any) -> Rows:
    return {
        "run": f"run-{job_id}", "job": job_id, "fence": fence, "resource": "default", "process": process,
        "wall": at, "monotonic": at, "token": None, **fields,
    }  # fmt: skip


def end(job_id: str, at: float, how: str = "returned") -> Rows:
    return {"run": f"run-{job_id}", "monotonic": at, "how": how}


def told(job_id: str | None, event: str, number: int, group_id: str | None = None) -> Rows:
    return {
        "id": f"message-{number}", "webhook_id": "hook", "job_id": job_id, "group_id": group_id, "event": event,
        "status": "DELIVERED",
    }  # fmt: skip


def of(rows: list[Rows], row_id: str, key: str = "id") -> Rows:
    return next(row for row in rows if row[key] == row_id)


def change(table: str, row_id: str, key: str = "id", **fields: Any) -> Spoil:
    return lambda rows: of(rows[table], row_id, key).update(fields)


def remove(table: str, row_id: str, key: str = "id") -> Spoil:
    return lambda rows: rows[table].remove(of(rows[table], row_id, key))


def add(table: str, *new: Rows) -> Spoil:
    return lambda rows: rows[table].extend(copy.deepcopy(new))


def both(*spoils: Spoil) -> Spoil:
    def spoil(rows: Rows) -> None:
        for one in spoils:
            one(rows)

    return spoil
