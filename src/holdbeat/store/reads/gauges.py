"""Figures of the store for metrics: one cheap read at each scrape."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdbeat.store.rare_events import event_counts
from holdbeat.store.reads.limit_figures import LimitFigures, affinity_counts, limit_figures
from holdbeat.store.reads.stats import count_workers, resource_stats
from holdbeat.store.transaction import Transaction


@dataclass(frozen=True, slots=True)
class StoreGauges:
    resources: dict[str, dict[str, Any]]
    """For each resource: slots, used, waiting, oldest_wait_s."""
    workers: int
    """Live ones that can run something."""
    heartbeat_age_s: float
    """Of the worker, among those that have not ended, whose last heartbeat is the longest ago."""
    trigger_lag_s: float
    deliveries_pending: int
    limits: list[LimitFigures]
    affinities: dict[str, tuple[int, int]]
    """By resource: how often a worker went on with the affinity that it ran last, and how often it changed."""
    events: dict[str, int]
    """How many operational Events of each name there have been."""


def read_gauges(tx: Transaction) -> StoreGauges:
    """Depth and waits of the queue, slots, workers, heartbeats, the trigger's lag, deliveries on their way."""
    row = tx.rows(
        "SELECT (SELECT min(heartbeat_at) FROM workers WHERE stopped_at IS NULL), "
        "(SELECT count(*) FROM deliveries WHERE status = 'PENDING')"
    )[0]
    return StoreGauges(
        resources=resource_stats(tx),
        workers=count_workers(tx),
        heartbeat_age_s=_age_s(tx.time(row[0]), tx.now),
        trigger_lag_s=trigger_lag_s(tx),
        deliveries_pending=int(row[1]),
        limits=limit_figures(tx),
        affinities=affinity_counts(tx),
        events=event_counts(tx),
    )


def trigger_lag_s(tx: Transaction) -> float:
    """For how long the longest waiting schedule has been due for a look that no trigger took."""
    row = tx.one("SELECT min(wake_at) FROM schedules WHERE wake_at IS NOT NULL")
    return _age_s(tx.time(row[0]) if row else None, tx.now)


def _age_s(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())
