"""The state of the whole store in numbers.

Keeps reads short beside millions of jobs: every figure comes from an index that holds little more than what is counted.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.job import JobStatus
from holdbeat.domain.run import RunStatus
from holdbeat.store.ended_runs import RUN_END, RUN_HAS_ENDED, RUN_OUTCOME, ended_types
from holdbeat.store.limits.in_force import limits_in_force
from holdbeat.store.rare_events import event_counts
from holdbeat.store.reads.rows import READY_SINCE
from holdbeat.store.reads.waits import wait_counts
from holdbeat.store.reads.workers import alive
from holdbeat.store.transaction import Row, Transaction

_EXACT_WAITS = 2_000
"""Above so many ready jobs a wait is counted from `created_at`, which the index has, even if the jobs became ready
later."""


def stats(tx: Transaction) -> dict[str, Any]:
    """Counts of jobs, slots, waits, runs of the last hour, workers, incidents and schedules."""
    counted = event_counts(tx)
    return {
        "jobs": job_counts(tx),
        "resources": resource_stats(tx),
        "waits": wait_counts(tx),
        "runs": {"last_hour": runs_since(tx, tx.now - timedelta(hours=1))},
        "workers": count_workers(tx),
        "zombies_recovered": counted[events.ZOMBIE_FOUND],
        "stale_results": counted[events.STALE_RESULT],
        "schedules": _count(tx, "schedules"),
    }


def count_workers(tx: Transaction) -> int:
    """Live workers that can run something: a server without slots, or a command that waits, is none."""
    where, params = alive(tx)
    return _count(tx, f"workers WHERE {where} AND (slots > 0 OR http_slots > 0)", **params)


def job_counts(tx: Transaction) -> dict[str, int]:
    """Jobs by status, and their total; of many jobs as they were a few seconds ago."""
    return tx.terms.counts.get("jobs", lambda: _job_counts(tx))


def _job_counts(tx: Transaction) -> tuple[dict[str, int], int]:
    counts = dict.fromkeys((str(status) for status in JobStatus), 0)
    for status, amount in tx.rows(
        "SELECT status, count(*) FROM jobs WHERE status IN ('FAILED', 'SKIPPED', 'CANCELLED') GROUP BY status"
    ):
        counts[status] = int(amount)
    for status, index, more in (
        (JobStatus.QUEUED, "jobs_queue", "AND priority >= 0"),
        (JobStatus.RUNNING, "jobs_running", ""),
        (JobStatus.CONTINUED, "jobs_continued", ""),
    ):
        counts[status] = _count(tx, f"jobs INDEXED BY {index} WHERE status = '{status}' {more}")
    total = _count(tx, "jobs")
    counts[JobStatus.COMPLETED] = total - sum(counts.values())
    return {**counts, "total": total}, total


def resource_stats(tx: Transaction) -> dict[str, dict[str, Any]]:
    """For each resource its slots (None without limit), the slots in use, how many wait, and the oldest wait.

    Waiting are the jobs that could run if there were a slot, and direct requests without one; if they are many, as they
    were a few seconds ago.
    """
    limits = limits_in_force(tx)
    used: Counter[str] = Counter()
    for resource, amount in tx.rows("SELECT resource, sum(weight) FROM leases GROUP BY resource"):
        used[resource] += int(amount)
    waiting, oldest = tx.terms.counts.get("waiting", lambda: _waiting(tx))
    figures = {}
    for name in sorted(limits.resources | used.keys() | waiting.keys()):
        since = oldest.get(name)
        figures[name] = {
            "slots": limits.slots_of(name),
            "used": used[name],
            "waiting": waiting[name],
            "oldest_wait_s": None if since is None else max(0.0, (tx.now - since).total_seconds()),
        }
    return figures


def ready_jobs(tx: Transaction) -> list[Row]:
    """Resource, type and number of the jobs that could run; if they are many, as they were a few seconds ago."""
    return tx.terms.counts.get("ready", lambda: _ready_jobs(tx))


def _ready_jobs(tx: Transaction) -> tuple[list[Row], int]:
    rows = tx.rows(
        "SELECT resource, type, count(*) FROM jobs INDEXED BY jobs_ready WHERE status = 'QUEUED' AND hold = 0 "
        "GROUP BY resource, type"
    )
    return rows, sum(row[2] for row in rows)


def runs_since(tx: Transaction, since: datetime) -> dict[str, int]:
    """Runs that ended after an instant, by outcome."""
    counts = dict.fromkeys((str(status) for status in RunStatus), 0)
    for outcome, amount in tx.rows(
        f"SELECT {RUN_OUTCOME}, count(*) FROM jobs j INDEXED BY jobs_ran "
        f"WHERE j.type IN :types AND {RUN_HAS_ENDED} AND {RUN_END} > :since GROUP BY 1",
        types=ended_types(tx),
        since=since,
    ):
        counts[outcome] = int(amount)
    return counts


def _waiting(tx: Transaction) -> tuple[tuple[Counter[str], dict[str, datetime]], int]:
    waiting: Counter[str] = Counter()
    oldest: dict[str, datetime] = {}

    def note(resource: str, amount: int, since: datetime) -> None:
        waiting[resource] += amount
        oldest[resource] = min(since, oldest.get(resource, since))

    ready = [
        (row[0], int(row[1]), tx.instant(row[2]))
        for row in tx.rows(
            "SELECT resource, count(*), min(created_at) FROM jobs INDEXED BY jobs_ready "
            "WHERE status = 'QUEUED' AND hold = 0 GROUP BY resource"
        )
    ]
    eligible = {}
    if sum(amount for _, amount, _ in ready) <= _EXACT_WAITS:
        eligible = {
            row[0]: tx.instant(row[1])
            for row in tx.rows(
                f"SELECT resource, min({READY_SINCE.format(job='')}) "
                "FROM jobs WHERE status = 'QUEUED' AND hold = 0 GROUP BY resource"
            )
        }
    for resource, amount, created_at in ready:
        note(resource, amount, eligible.get(resource, created_at))
    # Delayed jobs whose time has come are made ready by the next claim.
    for resource, amount, ripe_at in tx.rows(
        "SELECT resource, count(*), min(not_before) FROM jobs INDEXED BY jobs_delayed "
        "WHERE status = 'QUEUED' AND hold = 1 AND not_before <= :now GROUP BY resource",
        now=tx.now,
    ):
        note(resource, int(amount), tx.instant(ripe_at))
    for resource, amount, requested_at in tx.rows(
        "SELECT resource, count(*), min(requested_at) FROM direct_reservations "
        "WHERE status = 'ACTIVE' AND granted_at IS NULL AND expires_at > :now GROUP BY resource",
        now=tx.now,
    ):
        note(resource, int(amount), tx.instant(requested_at))
    return (waiting, oldest), waiting.total()


def _count(tx: Transaction, source: str, **params: Any) -> int:
    return tx.count(f"SELECT count(*) FROM {source}", **params)
