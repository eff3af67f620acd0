"""Words of the systems that people come from, each with ours beside it, for refusals that say what to write instead."""

from __future__ import annotations

from collections.abc import Collection

OLD_SETTINGS = {
    "lease_duration": "lease_s (seconds)",
    "lease_duration_seconds": "lease_s",
    "lease_timeout": "lease_s (seconds)",
    "heartbeat_interval": "heartbeat_s (seconds)",
    "heartbeat_interval_seconds": "heartbeat_s",
    "heartbeat_timeout": "lease_s (seconds)",
    "zombie_threshold": "lease_s and grace_s (seconds)",
    "grace_period": "grace_s (seconds)",
    "poll_interval": "recover_s for recovery; the queue needs no interval, because commits wake the workers",
    "max_workers": "slots",
    "worker_count": "slots",
    "max_concurrent_jobs": "concurrency",
    "max_concurrency": "concurrency",
    "max_retries": "retry_policy.max_attempts of a job, template or type",
    "retry_count": "retry_policy.max_attempts of a job, template or type",
    "base_delay": "retry_policy.base_delay_s of a job, template or type",
    "max_attempts": "retry_policy.max_attempts of a job, template or type",
    "retry_delay": "retry_policy.base_delay_s of a job, template or type",
    "job_timeout": "timeout_s of a job, template, schedule or type",
    "shutdown_timeout": "shutdown_grace_s (seconds)",
    "database_url": "store",
    "db_path": "store (sqlite:///FILE)",
    "batchsize": "trigger_batch",
    "batch_size": "trigger_batch",
    "pollinterval": "horizon_s for schedules; due times are fired at their instant",
    "maxexecutiontimems": "max_execution_s of an endpoint (seconds)",
    "minintervalms": "min_interval_s of an endpoint (seconds)",
    "maxintervalms": "max_interval_s of an endpoint (seconds)",
    "baselineintervalms": "interval_s of an endpoint (seconds)",
}
"""Settings, in lower case."""

OLD_FIELDS = {
    "job_id": "id",
    "job_ids": "jobs",
    "max_retries": "retry_policy.max_attempts",
    "retry_count": "retry_policy.max_attempts",
    "base_delay": "retry_policy.base_delay_s",
    "maxExecutionTimeMs": "max_execution_s (seconds)",
    "minIntervalMs": "min_interval_s (seconds)",
    "maxIntervalMs": "max_interval_s (seconds)",
    "baselineIntervalMs": "interval_s (seconds)",
    "baselineCron": "cron",
    "timeoutMs": "timeout_s (seconds)",
    "maxResponseSizeKb": "max_response_kb",
    "aiHintIntervalMs": "hints: {interval_s, ttl_s, reason}",
    "aiHintNextRunAt": "hints: {next_run_at, ttl_s, reason}",
    "nextRunAt": "next_run_at",
    "pausedUntil": "until of a pause",
    "failureCount": "failure_count",
}
"""Fields of requests."""

OLD_STATUSES = {
    "pending": "QUEUED",
    "queued": "QUEUED",
    "dispatched": "RUNNING",
    "running": "RUNNING",
    "retrying": "FAILED, with retried_by set",
    "succeeded": "COMPLETED",
    "success": "COMPLETED",
    "completed": "COMPLETED",
    "error": "FAILED",
    "failed": "FAILED",
    "canceled": "CANCELLED",
    "cancelled": "CANCELLED",
    "skipped": "SKIPPED",
}
"""Statuses of jobs and runs, in lower case."""


def status_hint(word: str, known: Collection[str]) -> str:
    """A sentence that names our word for an old status; empty if it is none of those that are known."""
    status = OLD_STATUSES.get(word.lower(), "")
    return f" It is called {status} here." if status.partition(",")[0] in known else ""


def field_hint(name: str) -> str:
    """A sentence that names our field for an old one; empty if it is none."""
    return f" It is called {OLD_FIELDS[name]}." if name in OLD_FIELDS else ""
