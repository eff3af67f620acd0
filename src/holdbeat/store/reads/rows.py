"""Rows of both engines as domain objects: which columns there are, by name, and how each is read."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from holdbeat.domain.group import GroupMode, GroupStatus, JobGroup, OnFailure
from holdbeat.domain.job import Hold, Job, JobStatus, JobTemplate, RetryPolicy
from holdbeat.domain.lease import Lease
from holdbeat.domain.params import dumps
from holdbeat.domain.reservation import Reservation, ReservationKind, ReservationOutcome, ReservationStatus
from holdbeat.domain.run import ErrorKind, JobRun, RunStatus
from holdbeat.store.reads.columns import TIME, Converter, member_of, optional, row_reader

JOB_FIELDS = (
    "id", "type", "params", "status", "priority", "position", "resource", "retry_policy", "created_at",
    "template_id", "schedule_id", "scheduled_for", "group_id", "sequence", "retry_of", "retry_kind", "retried_by",
    "permanently_failed", "timeout_s", "cancel_grace_s", "not_before", "idempotency_key", "webhook_url", "labels",
    "started_at", "finished_at", "cancel_requested_at", "cancel_reason", "hold", "attempt", "trace", "partition",
    "title", "root_id", "waits", "on_upstream", "is_awaited", "unique_key", "unique_while", "expires_at",
    "parent_id", "is_detached",
    "weight", "affinity", "preemption",
)  # fmt: skip
JOB = ", ".join(JOB_FIELDS)
JOB_OF_J = ", ".join(f"j.{name}" for name in JOB_FIELDS)

RUN_FIELDS = (
    "id", "job_id", "template_id", "params_snapshot", "worker_id", "fence", "started_at", "finished_at", "status",
    "exit_code", "error", "error_kind", "artifacts",
)  # fmt: skip
RUN = ", ".join(RUN_FIELDS)

LISTED_RESULT_BYTES = 2048
"""A result up to this size is part of a list; a larger one is read by its link."""
RESULT_FRAME_BYTES = len('{"result":}')
DELIVERED_RESULT_BYTES = 65_536
"""The same for what a webhook gets."""


def short_run_columns(dialect: str, prefix: str, inline_bytes: int) -> str:
    """The RUN columns without a result above this size, and the size of a result that is left out.

    To parse a result of megabytes takes a tenth of a second. That of a run without artifacts is all that its column
    holds, `{"result":…}`, and is not parsed.
    """
    artifacts = f"{prefix}artifacts"
    if dialect == "sqlite":
        bytes_ = f"length(CAST({artifacts} AS BLOB))"
        is_small = f"{bytes_} <= {inline_bytes:d}"
        rest, size = f"json_remove({artifacts}, '$.result')", f"length(CAST({artifacts} -> '$.result' AS BLOB))"
    else:
        bytes_ = f"octet_length({artifacts}::text)"
        # What is large even compressed need not be read to know it.
        is_small = f"(pg_column_size({artifacts}) <= {inline_bytes:d} AND {bytes_} <= {inline_bytes:d})"
        rest, size = f"({artifacts}::jsonb - 'result')::json", f"octet_length(({artifacts} -> 'result')::text)"
    is_alone = f"NOT EXISTS (SELECT 1 FROM artifacts AS kept WHERE kept.run_id = {prefix or 'job_runs.'}id)"
    names = ", ".join(f"{prefix}{name}" for name in RUN_FIELDS[:-1])
    return (
        f"{names}, CASE WHEN {is_small} THEN {artifacts} WHEN {is_alone} THEN '{{}}' ELSE {rest} END, "
        f"CASE WHEN {is_small} THEN NULL WHEN {is_alone} THEN {bytes_} - {RESULT_FRAME_BYTES:d} ELSE {size} END"
    )


LEASE_FIELDS = (
    "id", "worker_id", "slot", "resource", "type", "fence", "acquired_at", "heartbeat_at", "expires_at", "job_id",
    "reservation_id", "number", "numbers",
)  # fmt: skip
LEASE = ", ".join(LEASE_FIELDS)

GROUP_FIELDS = (
    "id", "name", "mode", "on_failure", "status", "created_at", "started_at", "finished_at", "is_awaited",
    "then_job_id",
)  # fmt: skip
GROUP = ", ".join(GROUP_FIELDS)

RESERVATION_FIELDS = (
    "id", "type", "resource", "status", "requested_at", "expires_at", "owner", "params", "timeout_s",
    "cancel_grace_s", "granted_at", "finished_at", "outcome", "error", "error_kind", "result", "worker_id", "fence",
    "cancel_requested_at", "partition", "kind", "title", "client", "ttl_s", "number", "weight",
    "preempts",
)  # fmt: skip
RESERVATION = ", ".join(RESERVATION_FIELDS)

TEMPLATE_FIELDS = (
    "id", "name", "type", "default_params", "priority", "resource", "retry_policy", "timeout_s", "webhook_url",
    "labels", "description", "archived_at", "version", "created_at", "cancel_grace_s",
)  # fmt: skip
TEMPLATE = ", ".join(TEMPLATE_FIELDS)


@lru_cache(maxsize=4096)
def policy_of(text: str) -> RetryPolicy:
    return RetryPolicy(**json.loads(text))


@lru_cache(maxsize=4096)
def policy_text(policy: RetryPolicy) -> str:
    return dumps(policy.as_dict())


_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def _object(text: str) -> dict[str, Any]:
    if text == "{}":
        return {}
    try:
        # What we wrote begins with its first brace, so the decoder's look for blanks can be left out.
        value: dict[str, Any] = _scan(text, 0)[0]
    except StopIteration:
        value = json.loads(text)
    return value


job_of = row_reader(
    Job,
    JOB_FIELDS,
    {
        "params": _object,
        "status": member_of(JobStatus),
        "retry_policy": policy_of,
        "created_at": TIME,
        "scheduled_for": TIME,
        "permanently_failed": bool,
        "not_before": TIME,
        "labels": _object,
        "started_at": TIME,
        "finished_at": TIME,
        "cancel_requested_at": TIME,
        "hold": member_of(Hold),
        "waits": optional(json.loads),
        "is_awaited": bool,
        "is_detached": bool,
        "expires_at": TIME,
    },
)
"""A row of the JOB columns, and perhaps others after them, as a Job."""

_RUN_CONVERTERS: dict[str, Converter] = {
    "params_snapshot": _object,
    "started_at": TIME,
    "finished_at": TIME,
    "status": optional(member_of(RunStatus)),
    "error_kind": optional(member_of(ErrorKind)),
    "artifacts": _object,
}
run_of = row_reader(JobRun, RUN_FIELDS, _RUN_CONVERTERS)
"""A row of the RUN columns as a JobRun."""
short_run_of = row_reader(JobRun, (*RUN_FIELDS, "omitted_result_bytes"), _RUN_CONVERTERS)
"""A row of `short_run_columns` as a JobRun."""


def _slot_numbers(text: str | None) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


lease_of = row_reader(
    Lease,
    LEASE_FIELDS,
    {"acquired_at": TIME, "heartbeat_at": TIME, "expires_at": TIME, "numbers": _slot_numbers},
)
"""A row of the LEASE columns as a Lease."""

group_of = row_reader(
    JobGroup,
    GROUP_FIELDS,
    {
        "mode": member_of(GroupMode),
        "on_failure": member_of(OnFailure),
        "status": member_of(GroupStatus),
        "created_at": TIME,
        "started_at": TIME,
        "finished_at": TIME,
        "is_awaited": bool,
    },
)
"""A row of the GROUP columns as a JobGroup."""

reservation_of = row_reader(
    Reservation,
    RESERVATION_FIELDS,
    {
        "status": member_of(ReservationStatus),
        "requested_at": TIME,
        "expires_at": TIME,
        "params": _object,
        "granted_at": TIME,
        "finished_at": TIME,
        "outcome": optional(member_of(ReservationOutcome)),
        "result": optional(json.loads),
        "cancel_requested_at": TIME,
        "preempts": bool,
        "kind": member_of(ReservationKind),
    },
)
"""A row of the RESERVATION columns as a Reservation."""

template_of = row_reader(
    JobTemplate,
    TEMPLATE_FIELDS,
    {
        "default_params": json.loads,
        "retry_policy": optional(json.loads),
        "labels": json.loads,
        "archived_at": TIME,
        "created_at": TIME,
    },
)
"""A row of the TEMPLATE columns as a JobTemplate."""
