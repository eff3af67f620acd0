"""The rows of a whole store, read without any code of ours, and what a store that has lived must contain."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import psycopg
from psycopg.types.string import TextLoader

PAUSED = "cpu"
"""The resource that is paused in the lived store."""
REQUIRED = {
    "jobs": [
        *(f"status = '{status}'" for status in ("QUEUED", "RUNNING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED")),
        *(f"status = 'QUEUED' AND hold = {hold}" for hold in (0, 1, 2, 3, 5)),
        "status = 'QUEUED' AND hold = 0 AND not_before IS NOT NULL",
        "status = 'QUEUED' AND effective_priority > priority",
        "status = 'QUEUED' AND retry_kind = 'auto'",
        "status = 'COMPLETED' AND retry_kind = 'auto'",
        "status = 'COMPLETED' AND not_before IS NOT NULL AND retry_kind IS NULL",
        "status = 'COMPLETED' AND effective_priority > priority",
        "status = 'COMPLETED' AND retry_kind = 'manual'",
        "status = 'QUEUED' AND retry_kind = 'manual'",
        "status = 'CANCELLED' AND started_at IS NULL",
        "status = 'CANCELLED' AND id IN (SELECT job_id FROM leases)",
        "status = 'CANCELLED' AND id IN (SELECT job_id FROM job_runs WHERE finished_at IS NOT NULL)",
        "permanently_failed",
        "idempotency_key IS NOT NULL AND request_hash IS NOT NULL",
        "template_id IS NOT NULL",
        "webhook_url IS NOT NULL",
        "unique_key IS NOT NULL AND unique_while = 'queued' AND expires_at IS NOT NULL",
        f"resource = '{PAUSED}' AND status = 'QUEUED'",
    ],
    "job_runs": [f"error_kind = '{kind}'" for kind in ("error", "timeout", "lost", "interrupted", "cancelled")],
    "leases": ["job_id IS NOT NULL", "reservation_id IS NOT NULL"],
    "job_groups": [
        *(f"status = '{status}'" for status in ("QUEUED", "RUNNING", "COMPLETED", "PARTIAL", "CANCELLED")),
        "mode = 'parallel'",
        "mode = 'sequential'",
        *(f"on_failure = '{answer}'" for answer in ("stop", "continue", "skip")),
    ],
    "job_templates": ["archived_at IS NULL", "archived_at IS NOT NULL"],
    "schedules": [
        "cron IS NOT NULL AND jitter_s > 0",
        "interval_s IS NOT NULL AND NOT adaptive",
        "adaptive AND hint_interval_s IS NOT NULL AND hint_next_run_at IS NOT NULL",
        "adaptive AND wake_at IS NULL AND enabled",
        "NOT enabled",
        "paused_until IS NOT NULL",
        "endpoint IS NOT NULL AND failure_count > 0",
    ],
    "occurrences": [f"status = '{status}'" for status in ("fired", "skipped", "missed", "coalesced", "manual")],
    "direct_reservations": [
        "status = 'ACTIVE' AND granted_at IS NULL",
        "status = 'ACTIVE' AND granted_at IS NOT NULL",
        "status = 'EXPIRED'",
        *(f"status = 'RELEASED' AND outcome = '{outcome}'" for outcome in ("COMPLETED", "FAILED", "CANCELLED")),
    ],
    "webhooks": ["previous_secret IS NOT NULL", "disabled_reason IS NOT NULL", "NOT enabled"],
    "deliveries": [
        "status = 'PENDING' AND attempts = 0",
        "status = 'PENDING' AND attempts > 0",
        "status = 'PENDING' AND locked_by IS NOT NULL",
        "status = 'DELIVERED'",
        "status = 'FAILED'",
        "webhook_id IS NULL",
        "group_id IS NOT NULL",
    ],
    "workers": ["stopped_at IS NOT NULL", "stopped_at IS NULL", "stopping_at IS NOT NULL"],
    "events": ["job_id IS NOT NULL", "schedule_id IS NOT NULL", "group_id IS NOT NULL"],
    "api_keys": ["revoked_at IS NOT NULL", "last_used_at IS NOT NULL", "expires_at IS NOT NULL"],
    "job_types": ["description IS NOT NULL"],
    "queue_pauses": ["reason IS NOT NULL"],
    "progress": ["fraction IS NOT NULL", "fraction IS NULL"],
    "run_logs": ["1 = 1"],
    "artifacts": ["path IS NOT NULL", "data IS NOT NULL"],
    "questions": ["answered_at IS NULL AND choices IS NOT NULL"],
    "dependencies": ["met_at IS NULL", "met_at IS NOT NULL", "is_group", "name IS NOT NULL"],
    "meta": ["key = 'terms'", "key = 'exposed_servers'"],
}
"""For each table, conditions of which each must hold for at least one row."""

OF_EACH_ENGINE = {"schema_migrations", "counters"}
Rows = dict[str, Counter[tuple[tuple[str, Any], ...]]]


def rows_of_file(path: str) -> Rows:
    """Every row of every table, generated columns too, as the driver gives it; an artifact in a file as its content."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        answer: Rows = {}
        for (name,) in tables.fetchall():
            columns = [str(row[1]) for row in connection.execute(f"PRAGMA table_xinfo({name})")]
            records = connection.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()
            answer[str(name)] = Counter(_row(columns, row) for row in records)
        return answer
    finally:
        connection.close()


def rows_of_database(url: str) -> Rows:
    """The same of a database."""
    with psycopg.connect(url) as connection:
        connection.adapters.register_loader("json", TextLoader)
        connection.execute("SET TimeZone = 'UTC'")
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        answer: Rows = {}
        for (name,) in tables:
            cursor = connection.execute(f"SELECT * FROM {name}")
            columns = [column.name for column in cursor.description or ()]
            answer[name] = Counter(_row(columns, row) for row in cursor.fetchall())
        return answer


def _row(columns: list[str], row: Any) -> tuple[tuple[str, Any], ...]:
    values = {name: _value(value) for name, value in zip(columns, row, strict=True)}
    values.pop("xid", None)  # the number of the transaction that wrote an Event, on PostgreSQL alone
    path = values.pop("path", None)
    if path is not None:
        values["data"] = Path(path).read_bytes() if Path(path).exists() else "a file that is gone"
    return tuple(sorted(values.items()))


def _value(value: Any) -> Any:
    match value:
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
        case bool():
            return int(value)
    return value


def assert_same(source: Rows, target: Rows) -> None:
    assert source.keys() - OF_EACH_ENGINE == target.keys() - OF_EACH_ENGINE
    for table in source.keys() - OF_EACH_ENGINE:
        missing, extra = source[table] - target[table], target[table] - source[table]
        assert not missing and not extra, f"{table}: missing {missing}, extra {extra}"
    empty = sorted(table for table in source if not source[table])
    assert not empty, f"tables of the lived store are empty: {empty}"
