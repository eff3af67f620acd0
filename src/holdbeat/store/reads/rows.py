"""Rows of both engines as domain objects: the one place that knows column orders."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from holdbeat.domain.group import GroupMode, GroupStatus, JobGroup, OnFailure
from holdbeat.domain.job import Hold, Job, JobStatus, RetryPolicy
from holdbeat.domain.lease import Lease
from holdbeat.domain.params import dumps
from holdbeat.domain.reservation import Reservation, ReservationOutcome, ReservationStatus
from holdbeat.domain.run import ErrorKind, JobRun, RunStatus
from holdbeat.domain.template import JobTemplate
from holdbeat.store.transaction import Row, Transaction

JOB_FIELDS = (
    "id", "type", "params", "status", "priority", "position", "resource", "retry_policy", "created_at",
    "template_id", "schedule_id", "scheduled_for", "group_id", "sequence", "retry_of", "retry_kind", "retried_by",
    "permanently_failed", "timeout_s", "cancel_grace_s", "not_before", "idempotency_key", "webhook_url", "labels",
    "started_at", "finished_at", "cancel_requested_at", "cancel_reason", "hold", "attempt", "trace", "partition",
    "title", "root_id", "waits", "on_upstream", "is_awaited", "unique_key", "unique_while", "expires_at",
    "parent_id", "is_detached",
)  # fmt: skip
assert tuple(field.name for field in fields(Job))[: len(JOB_FIELDS)] == JOB_FIELDS
_JOB_WIDTH = len(JOB_FIELDS)
JOB = ", ".join(JOB_FIELDS)
JOB_OF_J = ", ".join(f"j.{name}" for name in JOB_FIELDS)

RUN_FIELDS = (
    "id", "job_id", "template_id", "params_snapshot", "worker_id", "fence", "started_at", "finished_at", "status",
    "exit_code", "error", "error_kind", "artifacts",
)  # fmt: skip
RUN = ", ".join(RUN_FIELDS)

LISTED_RESULT_BYTES = 2048
"""A result up to this size is part of a list; a larger one is read by its link."""
DELIVERED_RESULT_BYTES = 65_536
"""The same for what a webhook gets."""


def short_run_columns(dialect: str, prefix: str, inline_bytes: int) -> str:
    """The RUN columns without a result above this size, and the size of a result that is left out."""
    artifacts = f"{prefix}artifacts"
    if dialect == "sqlite":
        is_small = f"length(CAST({artifacts} AS BLOB)) <= {inline_bytes:d}"
        rest, size = f"json_remove({artifacts}, '$.result')", f"length(CAST({artifacts} -> '$.result' AS BLOB))"
    else:
        is_small = f"octet_length({artifacts}::text) <= {inline_bytes:d}"
        rest, size = f"({artifacts}::jsonb - 'result')::json", f"octet_length(({artifacts} -> 'result')::text)"
    names = ", ".join(f"{prefix}{name}" for name in RUN_FIELDS[:-1])
    return (
        f"{names}, CASE WHEN {is_small} THEN {artifacts} ELSE {rest} END, "
        f"CASE WHEN {is_small} THEN NULL ELSE {size} END"
    )


LEASE_FIELDS = (
    "id", "worker_id", "slot", "resource", "type", "fence", "acquired_at", "heartbeat_at", "expires_at", "job_id",
    "reservation_id", "number",
)  # fmt: skip
LEASE = ", ".join(LEASE_FIELDS)

GROUP_FIELDS = ("id", "name", "mode", "on_failure", "status", "created_at", "started_at", "finished_at", "is_awaited")
GROUP = ", ".join(GROUP_FIELDS)

RESERVATION_FIELDS = (
    "id", "type", "resource", "status", "requested_at", "expires_at", "owner", "params", "timeout_s",
    "cancel_grace_s", "granted_at", "finished_at", "outcome", "error", "error_kind", "result", "worker_id", "fence",
    "cancel_requested_at", "partition",
)  # fmt: skip
RESERVATION = ", ".join(RESERVATION_FIELDS)

TEMPLATE_FIELDS = (
    "id", "name", "type", "default_params", "priority", "resource", "retry_policy", "timeout_s", "webhook_url",
    "labels", "description", "archived_at", "version", "created_at", "cancel_grace_s",
)  # fmt: skip
TEMPLATE = ", ".join(TEMPLATE_FIELDS)

STATUS = {status.value: status for status in JobStatus}
_HOLD = {int(hold): hold for hold in Hold}


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
        found: dict[str, Any] = _scan(text, 0)[0]
    except StopIteration:
        found = json.loads(text)
    return found


def job_of(tx: Transaction, row: Sequence[Any]) -> Job:
    """A row of the JOB columns, and perhaps others after them, as a Job, whose first fields they are."""
    (
        id_, type_, params, status, priority, position, resource, retry_policy, created_at, template_id, schedule_id,
        scheduled_for, group_id, sequence, retry_of, retry_kind, retried_by, permanently_failed, timeout_s,
        cancel_grace_s, not_before, idempotency_key, webhook_url, labels, started_at, finished_at, cancel_requested_at,
        cancel_reason, hold, attempt, trace, partition, title, root_id, waits, on_upstream,
        is_awaited, unique_key, unique_while, expires_at, parent_id, is_detached,
    ) = row[:_JOB_WIDTH]  # fmt: skip
    time: Callable[[Any], Any] = tx.time
    return Job(
        id_, type_, _object(params), STATUS[status], priority, position, resource, policy_of(retry_policy),
        time(created_at), template_id, schedule_id, scheduled_for and time(scheduled_for), group_id, sequence, retry_of,
        retry_kind, retried_by, bool(permanently_failed), timeout_s, cancel_grace_s, not_before and time(not_before),
        idempotency_key, webhook_url, _object(labels), started_at and time(started_at),
        finished_at and time(finished_at), cancel_requested_at and time(cancel_requested_at), cancel_reason,
        _HOLD[hold], attempt, trace, partition, title, root_id, waits and json.loads(waits),
        on_upstream, bool(is_awaited), unique_key, unique_while, expires_at and time(expires_at),
        parent_id, bool(is_detached),
    )  # fmt: skip


def run_of(tx: Transaction, row: Sequence[Any]) -> JobRun:
    """A row of the RUN columns, or of `short_run_columns`, as a JobRun."""
    return JobRun(
        id=row[0],
        job_id=row[1],
        template_id=row[2],
        params_snapshot=_object(row[3]),
        worker_id=row[4],
        fence=row[5],
        started_at=tx.instant(row[6]),
        finished_at=tx.time(row[7]),
        status=RunStatus(row[8]) if row[8] else None,
        exit_code=row[9],
        error=row[10],
        error_kind=ErrorKind(row[11]) if row[11] else None,
        artifacts=_object(row[12]),
        omitted_result_bytes=row[13] if len(row) > 13 else None,
    )


def lease_of(tx: Transaction, row: Sequence[Any]) -> Lease:
    """A row of the LEASE columns as a Lease."""
    return Lease(
        id=row[0],
        worker_id=row[1],
        slot=row[2],
        resource=row[3],
        type=row[4],
        fence=row[5],
        acquired_at=tx.instant(row[6]),
        heartbeat_at=tx.instant(row[7]),
        expires_at=tx.instant(row[8]),
        job_id=row[9],
        reservation_id=row[10],
        number=row[11],
    )


def group_of(tx: Transaction, row: Sequence[Any]) -> JobGroup:
    """A row of the GROUP columns as a JobGroup."""
    return JobGroup(
        id=row[0],
        name=row[1],
        mode=GroupMode(row[2]),
        on_failure=OnFailure(row[3]),
        status=GroupStatus(row[4]),
        created_at=tx.instant(row[5]),
        started_at=tx.time(row[6]),
        finished_at=tx.time(row[7]),
        is_awaited=bool(row[8]),
    )


def reservation_of(tx: Transaction, row: Row) -> Reservation:
    """A row of the RESERVATION columns as a Reservation."""
    time = tx.time
    return Reservation(
        id=row[0],
        type=row[1],
        resource=row[2],
        status=ReservationStatus(row[3]),
        requested_at=tx.instant(row[4]),
        expires_at=time(row[5]) or tx.instant(row[4]),
        owner=row[6],
        params=_object(row[7]),
        timeout_s=row[8],
        cancel_grace_s=row[9],
        granted_at=time(row[10]),
        finished_at=time(row[11]),
        outcome=ReservationOutcome(row[12]) if row[12] else None,
        error=row[13],
        error_kind=row[14],
        result=json.loads(row[15]) if row[15] is not None else None,
        worker_id=row[16],
        fence=row[17],
        cancel_requested_at=time(row[18]),
        partition=row[19],
    )


def template_of(tx: Transaction, row: Row) -> JobTemplate:
    """A row of the TEMPLATE columns as a JobTemplate."""
    return JobTemplate(
        id=row[0],
        name=row[1],
        type=row[2],
        default_params=json.loads(row[3]),
        priority=row[4],
        resource=row[5],
        retry_policy=json.loads(row[6]) if row[6] is not None else None,
        timeout_s=row[7],
        webhook_url=row[8],
        labels=json.loads(row[9]),
        description=row[10],
        archived_at=tx.time(row[11]),
        version=row[12],
        created_at=tx.time(row[13]),
        cancel_grace_s=row[14],
    )
