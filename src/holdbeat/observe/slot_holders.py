"""Words about those who hold the slots of a pool."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdbeat.domain.clock import iso
from holdbeat.domain.job import Job
from holdbeat.domain.limit import EACH
from holdbeat.domain.reservation import Reservation
from holdbeat.observe.wording import span
from holdbeat.store.reads.estimates import fullest_pool
from holdbeat.store.reads.lease_holders import Holder
from holdbeat.store.transaction import Transaction


def holder_words(holder: Holder, now: datetime) -> str:
    lasted = span((now - holder.since).total_seconds())
    if holder.slot is None:
        who = f" by {holder.client}" if holder.client else ""
        how = ", cancelled but not given back" if holder.is_cancelled else ""
        return f"reservation {holder.reservation_id} ({holder.type}{who} for {lasted}{how})"
    what = f"job {holder.job_id}" if holder.job_id else f"direct request {holder.reservation_id}"
    how = ", cancelled but still running" if holder.is_cancelled else ""
    return f"{what} ({holder.type} on {holder.worker_id} for {lasted}{how})"


def holder_json(holder: Holder) -> dict[str, Any]:
    return {
        "job_id": holder.job_id,
        "reservation_id": holder.reservation_id,
        "type": holder.type,
        "worker_id": holder.worker_id,
        "client": holder.client,
        "since": iso(holder.since),
        "cancelled": holder.is_cancelled,
    }


def pool_words(tx: Transaction, work: Job | Reservation) -> str:
    """The pool by what it covers, and by the name of its limit where that says something else."""
    pool = fullest_pool(tx, work)
    if pool is None or pool.limit.resource == EACH:
        return f"the resource {work.resource}"
    if pool.limit.type == EACH:
        return f"the job type {work.type}"
    limit = pool.limit
    of = f" for the partition {work.partition}" if limit.per_partition and work.partition else ""
    named = (
        "" if limit.name in (limit.resource, limit.type, f"type:{limit.type}", "global") else f" (limit {limit.name})"
    )
    return f"{limit.words()}{of}{named}"
