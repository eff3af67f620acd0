"""Endpoints: adaptive Schedules whose work is an HTTP call.

All steps of a schedule are also those of an endpoint (`schedules`, with `endpoint=True`); here is what they have of
their own. Guards GOV-12: health is read from the runs of the endpoint's jobs, so that a test call, which makes none,
never counts.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdbeat.domain.endpoint import HEALTH_WINDOWS, health
from holdbeat.domain.run import ErrorKind
from holdbeat.domain.schedule import job_for
from holdbeat.store.reads.needs_attention import first_id
from holdbeat.store.schedules.schedules import get_schedule
from holdbeat.store.transaction import Transaction

_LONGEST_WAIT = timedelta(days=1)
"""Jobs that waited longer than this for their run are not looked for in a window."""
_NEITHER = (ErrorKind.CANCELLED.value, ErrorKind.INTERRUPTED.value)
"""Ends that say nothing about the endpoint."""


def endpoint_call(tx: Transaction, reference: str) -> dict[str, Any]:
    """The params of the HTTP call that the endpoint makes, secrets included: for making it, never for showing it."""
    params: dict[str, Any] = job_for(get_schedule(tx, reference, endpoint=True), None)["params"]
    return params


def endpoint_health(tx: Transaction, reference: str) -> dict[str, Any]:
    """Successes, failures, mean duration over 1, 4 and 24 hours, the streak and the last run."""
    endpoint = get_schedule(tx, reference, endpoint=True)
    since = tx.now - timedelta(seconds=max(HEALTH_WINDOWS.values()))
    columns = "r.status, r.error_kind, r.started_at, r.finished_at"
    source = "jobs j JOIN job_runs r ON r.job_id = j.id WHERE j.schedule_id = :id AND r.finished_at IS NOT NULL"
    # Ids sort by creation: the newest part of the index is enough, however long the history is.
    rows = tx.rows(
        f"SELECT {columns} FROM {source} AND j.id >= :first AND r.finished_at > :since",
        id=endpoint.id,
        first=first_id(since - _LONGEST_WAIT),
        since=since,
    )
    if not rows:
        rows = tx.rows(f"SELECT {columns} FROM {source} ORDER BY j.id DESC LIMIT 1", id=endpoint.id)
    return {
        "endpoint_id": endpoint.id,
        "failure_count": endpoint.failure_count,
        **health([(row[0], tx.instant(row[2]), tx.time(row[3])) for row in rows if row[1] not in _NEITHER], tx.now),
    }
