"""Rows of both engines as domain objects: which columns there are, by name, and how each is read."""

from __future__ import annotations

import json
from functools import lru_cache

from holdbeat.domain.group import JobGroup
from holdbeat.domain.job import Job, JobTemplate, RetryPolicy
from holdbeat.domain.lease import Lease
from holdbeat.domain.params import dumps
from holdbeat.domain.reservation import Reservation
from holdbeat.domain.run import JobRun
from holdbeat.store.reads.columns import Table, optional, row_reader

READY_SINCE = (
    "CASE WHEN {job}effective_priority = {job}priority AND {job}ages_at > {job}created_at "
    "AND ({job}not_before IS NULL OR {job}ages_at > {job}not_before) THEN {job}ages_at "
    "WHEN {job}not_before > {job}created_at THEN {job}not_before ELSE {job}created_at END"
)
"""Since when a job that is ready, or has started, could run: what it waited for before that (a signal, an answer, a
child, other jobs, an instant) is no wait for a slot. Whatever opens a job writes `ages_at`; ageing moves it on only
when it raises the priority, and then the delay or the making of the job has to do. `{job}` is the table and a point,
or nothing."""

LISTED_RESULT_BYTES = 2048
"""A result up to this size is part of a list; a larger one is read by its link."""
RESULT_FRAME_BYTES = len('{"result":}')
DELIVERED_RESULT_BYTES = 65_536
"""The same for what a webhook gets."""


def short_run_columns(dialect: str, prefix: str, inline_bytes: int) -> str:
    """The columns of runs without a result above this size, and the size of a result that is left out.

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
    names = ", ".join(f"{prefix}{name}" for name in RUNS.fields[:-1])
    return (
        f"{names}, CASE WHEN {is_small} THEN {artifacts} WHEN {is_alone} THEN '{{}}' ELSE {rest} END, "
        f"CASE WHEN {is_small} THEN NULL WHEN {is_alone} THEN {bytes_} - {RESULT_FRAME_BYTES:d} ELSE {size} END"
    )


@lru_cache(maxsize=4096)
def policy_of(text: str) -> RetryPolicy:
    return RetryPolicy(**json.loads(text))


@lru_cache(maxsize=4096)
def policy_text(policy: RetryPolicy) -> str:
    return dumps(policy.as_dict())


def _slot_numbers(text: str | None) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


JOBS = Table("jobs", Job, {"retry_policy": policy_of}, before="worker_id", noun="job")
"""The other fields of a Job are read from elsewhere."""
JOB_OF_J = ", ".join(f"j.{name}" for name in JOBS.fields)
RUNS = Table("job_runs", JobRun, before="omitted_result_bytes", noun="job run")
short_run_of = row_reader(JobRun, (*RUNS.fields, "omitted_result_bytes"))
"""A row of `short_run_columns` as a JobRun."""
LEASES = Table("leases", Lease, {"numbers": _slot_numbers})
GROUPS = Table("job_groups", JobGroup, noun="job group")
RESERVATIONS = Table("direct_reservations", Reservation, {"result": optional(json.loads)}, noun="reservation")
TEMPLATES = Table("job_templates", JobTemplate)
