"""Expiry: a job that has not started by its `expires_at` ends SKIPPED, wherever in the queue it stands (QUE-09).

A claim ends what has expired before it chooses, in the same transaction, so it never starts such a job. Recovery does
the same where nobody claims.
"""

from __future__ import annotations

from holdbeat.store.dependencies.consequences import follow_unstarted
from holdbeat.store.queue.ageing import AT_ONCE
from holdbeat.store.queue.unstarted import skip_unstarted
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.outbox import Outbox

EXPIRED = "expired"
EXPIRING = "FROM jobs INDEXED BY jobs_expiring WHERE status = 'QUEUED' AND expires_at IS NOT NULL"


def has_expired(tx: Transaction) -> bool:
    """Whether a job that waits has expired."""
    row = tx.one(f"SELECT (SELECT min(expires_at) {EXPIRING}) <= :now", now=tx.now)
    return bool(row and row[0])


def expire_jobs(tx: Transaction) -> bool:
    """Ends every job that has expired, with all that follows. Whether there was one."""
    outbox = Outbox(tx)
    any_ended = False
    while True:
        # Not SKIP LOCKED: a row that is locked for a moment must not start after this check.
        rows = tx.rows(
            f"SELECT id {EXPIRING} AND expires_at <= :now ORDER BY id LIMIT :few FOR UPDATE", now=tx.now, few=AT_ONCE
        )
        if rows:
            any_ended = True
            ended = skip_unstarted(tx, [row[0] for row in rows], EXPIRED, outbox)
            follow_unstarted(tx, ended, outbox)
        if len(rows) < AT_ONCE:
            outbox.write()
            return any_ended
