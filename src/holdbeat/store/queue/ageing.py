"""Ageing: a job that was ready and waited long enough counts as more urgent (QUE-05).

The raised priority is written down when it changes, so that the claim can go by an index. `ages_at` is the instant up
to which a job's waiting has been counted; where it is null nobody has counted yet, and the job waits since its
`not_before`, or since it was made. So code that makes a job ready need not know about ageing: the claims of processes
with `aging_s` start to count.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from holdbeat.domain.job import Hold
from holdbeat.schemas.field_bounds import PRIORITY_MAX
from holdbeat.store.transaction import Row, Transaction

AT_ONCE = 1000
"""Jobs that are raised or promoted by one statement. The bound is for PostgreSQL, which then goes by the index; the
statement is repeated until nothing is left to do."""


def counted_from(tx: Transaction, priority: int, hold: Hold) -> datetime | None:
    """From when the waiting of a job that becomes ready now is counted; None if it is not."""
    return None if hold is not Hold.READY or priority >= PRIORITY_MAX else tx.now


def apply_ageing(tx: Transaction) -> None:
    """Raises every ready job whose time has come, by one for each period that has passed.

    Jobs that nobody has counted yet are taken on a batch at a time, so that no claim has to count a long queue.
    """
    if tx.terms.aging_s <= 0:
        return
    while len(_raise(tx)) >= AT_ONCE:
        """There may be more."""


_WAITING = (
    "SELECT id, effective_priority, ages_at, created_at, not_before FROM jobs INDEXED BY jobs_ageing "
    "WHERE status = 'QUEUED' AND hold < 1 AND effective_priority < 100 AND attempt >= 0 AND ages_at {when} "
    "ORDER BY ages_at LIMIT :few FOR UPDATE SKIP LOCKED"
)
_DUE = _WAITING.format(when="<= :before")
_UNCOUNTED = _WAITING.format(when="IS NULL")


def _raise(tx: Transaction) -> list[Row]:
    period = timedelta(seconds=tx.terms.aging_s)
    due, uncounted = tx.all_rows((_DUE, {"before": tx.now - period, "few": AT_ONCE}), (_UNCOUNTED, {"few": AT_ONCE}))
    if not due and not uncounted:
        return due
    counted = []
    for job_id, priority, ages_at, created_at, not_before in due + uncounted:
        since = tx.time(ages_at)
        if since is None:
            created = tx.instant(created_at)
            since = max(created, tx.time(not_before) or created)
        periods = max(0, (tx.now - since) // period)
        effective = min(PRIORITY_MAX, priority + periods)
        counted.append((job_id, effective, since + periods * period if effective < PRIORITY_MAX else None))
    tx.execute(
        "UPDATE jobs SET effective_priority = c.effective, ages_at = c.ages_at "
        "FROM rows(:counted; id text, effective int, ages_at time) AS c WHERE jobs.id = c.id",
        counted=counted,
    )
    return due
