"""The unique keys of jobs: which job holds a key, and what a retry does about it (QUE-08).

The database holds a key with a unique index. A transaction locks a key before it looks for it, so that two do not both
find it free.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdbeat.domain.job import NewJob, UniqueWhile
from holdbeat.store.transaction import Transaction

HELD = "unique_key IS NOT NULL AND (status = 'QUEUED' OR (status = 'RUNNING' AND unique_while = 'unfinished'))"
"""Whether a job has its key: the condition of the index jobs_unique."""


def lock_keys(tx: Transaction, keys: Sequence[str]) -> None:
    """Lets nobody else look for, or take, these keys until the transaction has ended."""
    tx.lock_pools(f"unique:{key}" for key in sorted(set(keys)))


def holders(tx: Transaction, keys: Sequence[str]) -> dict[str, str]:
    """For each of these keys the id of the job that has it, which is locked."""
    while True:
        rows = tx.rows(
            f"SELECT unique_key, id FROM jobs INDEXED BY jobs_unique WHERE unique_key IN :keys AND {HELD} "
            "ORDER BY id FOR UPDATE",
            keys=sorted(set(keys)),
        )
        if tx.dialect == "sqlite":
            return dict(rows)
        # One that was let go while this waited has left its key to a job that only a second look sees.
        again = tx.rows(f"SELECT unique_key, id FROM jobs WHERE unique_key IN :keys AND {HELD}", keys=sorted(set(keys)))
        if sorted(again) == sorted(rows):
            return dict(rows)


def give_up_taken_keys(tx: Transaction, requests: Sequence[NewJob]) -> None:
    """Removes the key of retries if another job took it while their predecessor ran.

    That can happen only where a running job does not have the key (`unique_while` `queued`).
    """
    queued = [request for request in requests if request.unique_while == UniqueWhile.QUEUED]
    keys = [request.unique_key for request in queued if request.unique_key is not None]
    if not keys:
        return
    lock_keys(tx, keys)
    taken_keys = set(tx.column(f"SELECT unique_key FROM jobs WHERE unique_key IN :keys AND {HELD}", keys=keys))
    for request in queued:
        if request.unique_key in taken_keys:
            request.unique_key = request.unique_while = None
        elif request.unique_key is not None:
            taken_keys.add(request.unique_key)
