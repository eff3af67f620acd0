"""Ageing: a job that was ready and waited long enough counts as more urgent (QUE-05).

The raised priority is written down when it changes, so that the claim can go by an index; the change falls due at
`ages_at` and is made inside the claim, before it looks.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from holdbeat.domain.job import Hold
from holdbeat.store.transaction import Row, Transaction

PRIORITY_MAX = 100
AT_ONCE = 1000
"""Jobs that are raised or promoted by one statement. The bound is for PostgreSQL, which then goes by the index; the
statement is repeated until nothing is left to do."""


def first_ageing(tx: Transaction, priority: int, hold: Hold) -> datetime | None:
    """When a job that becomes ready now is due for its first raise; None if it never is."""
    if tx.terms.aging_s <= 0 or hold is not Hold.READY or priority >= PRIORITY_MAX:
        return None
    return tx.now + timedelta(seconds=tx.terms.aging_s)


def raise_the_waiting(tx: Transaction) -> None:
    """Raises every ready job whose time has come, by one for each period that has passed."""
    if tx.terms.aging_s <= 0:
        return
    while len(_raise(tx)) == AT_ONCE:
        """There may be more."""


def _raise(tx: Transaction) -> list[Row]:
    due = tx.rows(
        "SELECT id, effective_priority, ages_at FROM jobs INDEXED BY jobs_ageing "
        "WHERE status = 'QUEUED' AND hold = 0 AND ages_at IS NOT NULL AND ages_at <= :now "
        "ORDER BY ages_at LIMIT :few FOR UPDATE SKIP LOCKED",
        now=tx.now,
        few=AT_ONCE,
    )
    if not due:
        return due
    period = timedelta(seconds=tx.terms.aging_s)
    raised = []
    for job_id, priority, ages_at in due:
        at = tx.time(ages_at)
        assert at is not None
        periods = 1 + (tx.now - at) // period
        effective = min(PRIORITY_MAX, priority + periods)
        raised.append((job_id, effective, at + periods * period if effective < PRIORITY_MAX else None))
    tx.execute(
        "UPDATE jobs SET effective_priority = r.effective, ages_at = r.ages_at "
        "FROM rows(:raised; id text, effective int, ages_at time) AS r WHERE jobs.id = r.id",
        raised=raised,
    )
    return due
