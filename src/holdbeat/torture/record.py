"""The tables of a store as the plain rows that the checker reads."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.transaction import Transaction
from holdbeat.torture.checker import History
from holdbeat.torture.witness import read_notes

TABLES: dict[str, tuple[str, Sequence[str]]] = {
    "jobs": (
        "jobs",
        (
            "id", "status", "resource", "retry_of", "retry_kind", "retried_by", "permanently_failed", "retry_policy",
            "attempt", "not_before", "group_id", "sequence", "schedule_id", "scheduled_for", "idempotency_key",
            "parent_id", "unique_key", "unique_while", "expires_at",
        ),
    ),
    "runs": ("job_runs", ("id", "job_id", "fence", "status", "error_kind", "started_at", "finished_at")),
    "groups": ("job_groups", ("id", "mode", "on_failure", "status")),
    "occurrences": ("occurrences", ("schedule_id", "due_at", "status", "job_id", "count")),
    "reservations": ("direct_reservations", ("id", "status", "outcome")),
    "deliveries": ("deliveries", ("id", "webhook_id", "job_id", "group_id", "event", "status")),
    "leases": ("leases", ("id",)),
    "steps": ("steps", ("root_id", "value", "name")),
}  # fmt: skip
TIMES = frozenset({"not_before", "scheduled_for", "started_at", "finished_at", "due_at", "expires_at"})
JSON = frozenset({"retry_policy", "value"})


def read_tables(tx: Transaction) -> dict[str, list[dict[str, Any]]]:
    """Every table that the checker reads, in one snapshot."""
    tables = {}
    for name, (table, columns) in TABLES.items():
        rows = tx.dicts(columns, f"SELECT {', '.join(columns)} FROM {table} ORDER BY {columns[0]}, {columns[-1]}")
        for row in rows:
            for column in TIMES & row.keys():
                at = tx.time(row[column])
                row[column] = None if at is None else at.timestamp()
            for column in JSON & row.keys():
                if isinstance(row[column], str):
                    row[column] = json.loads(row[column])
        tables[name] = rows
    return tables


def history_of(store: PersistenceAdapter, witness: Path, **known: Any) -> History:
    """Collects the notes of a campaign, those of its handlers, and the rows of the store."""
    notes: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in read_notes(witness):
        notes[entry["kind"]].append(entry)
    answers = {entry["token"]: entry["outcome"] for entry in notes["answered"]}
    requests = [{"token": entry["token"], "outcome": answers.get(entry["token"])} for entry in notes["asked"]]
    tables: dict[str, Any] = {**store.read_sync(read_tables)}
    return History(
        starts=notes["start"], ends=notes["end"], ticks=notes["tick"], requests=requests, steps_seen=notes["step"],
        sleeps_seen=notes["sleep"], waits_seen=notes["wait"], children_seen=notes["child"], **tables, **known,
    )  # fmt: skip
