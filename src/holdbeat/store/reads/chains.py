"""Walks along chains: a job, its automatic retries and its continuations, from the root to the tip.

Every recursive query over `retry_of` and `retried_by` is here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdbeat.store.reads.rows import JOBS
from holdbeat.store.transaction import Transaction

CHAIN_MAX = 100


def tip_of(tx: Transaction, job_id: str) -> str:
    """The id of the newest job in the chain of a job."""
    tips = tips_of(tx, [job_id])
    if not tips:
        raise JOBS.unknown(job_id)
    return tips[0]


def tips_of(tx: Transaction, job_ids: Sequence[str]) -> list[str]:
    """The ids of the newest jobs in the chains of these jobs."""
    return tx.column(
        "WITH RECURSIVE chain(id, retried_by) AS ("
        " SELECT id, retried_by FROM jobs WHERE id IN :ids"
        " UNION SELECT j.id, j.retried_by FROM chain JOIN jobs j ON j.id = chain.retried_by)"
        " SELECT id FROM chain WHERE retried_by IS NULL",
        ids=list(job_ids),
    )


def tips_by_root(tx: Transaction, root_ids: Sequence[str]) -> dict[str, str]:
    """For each of these jobs the newest of its chain; those that are gone are left out."""
    if not root_ids:
        return {}
    rows = tx.rows(
        "WITH RECURSIVE chain(root, id, retried_by) AS ("
        " SELECT id, id, retried_by FROM jobs WHERE id IN :ids"
        " UNION ALL SELECT chain.root, j.id, j.retried_by FROM chain JOIN jobs j ON j.id = chain.retried_by)"
        " SELECT root, id FROM chain WHERE retried_by IS NULL",
        ids=list(root_ids),
    )
    return {row[0]: row[1] for row in rows}


def roots_of(tx: Transaction, job_ids: Sequence[str]) -> dict[str, str]:
    """For each of these jobs the first of its chain; a manual retry begins a chain."""
    rows = tx.rows(
        "WITH RECURSIVE chain(start, id, retry_of, retry_kind) AS ("
        " SELECT id, id, retry_of, retry_kind FROM jobs WHERE id IN :ids"
        " UNION ALL SELECT chain.start, j.id, j.retry_of, j.retry_kind FROM chain JOIN jobs j"
        " ON j.id = chain.retry_of WHERE chain.retry_kind IN ('auto', 'continue'))"
        " SELECT start, id FROM chain WHERE retry_kind IS NULL OR retry_kind = 'manual'",
        ids=list(job_ids),
    )
    return {row[0]: row[1] for row in rows}


def completed_retries(tx: Transaction, root_ids: Sequence[str]) -> dict[str, str]:
    """For each of these first jobs the newest job that completed among its chain, its manual retries and its reruns."""
    if not root_ids:
        return {}
    rows = tx.rows(
        "WITH RECURSIVE family(root, id, retried_by) AS ("
        " SELECT id, id, retried_by FROM jobs WHERE id IN :ids"
        " UNION SELECT family.root, j.id, j.retried_by FROM family JOIN jobs j"
        " ON j.id = family.retried_by OR (j.retry_of = family.id AND j.retry_kind = 'manual'))"
        " SELECT family.root, max(family.id) FROM family JOIN jobs j ON j.id = family.id"
        " WHERE j.status = 'COMPLETED' GROUP BY family.root",
        ids=list(root_ids),
    )
    return {row[0]: row[1] for row in rows}


def original_params(tx: Transaction, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each of these jobs the params of the first of its chain; a retry's own may have been changed."""
    if not job_ids:
        return {}
    roots = roots_of(tx, job_ids)
    rows = tx.rows("SELECT id, params FROM jobs WHERE id IN :ids", ids=sorted(set(roots.values())))
    texts: dict[str, str] = {row[0]: row[1] for row in rows}
    return {job_id: json.loads(texts[root_id]) for job_id, root_id in roots.items()}


def failures_in_chain(tx: Transaction, job_id: str, kinds: Sequence[str], most: int) -> int:
    """How many runs failed in one of these ways, back to the original, manual retries included; at most `most`."""
    return tx.count(
        "WITH RECURSIVE chain(id, retry_of) AS ("
        " SELECT id, retry_of FROM jobs WHERE id = :id"
        " UNION SELECT j.id, j.retry_of FROM chain JOIN jobs j ON j.id = chain.retry_of)"
        " SELECT count(*) FROM (SELECT r.id FROM chain JOIN job_runs r ON r.job_id = chain.id"
        " WHERE r.status = 'FAILED' AND r.error_kind IN :kinds LIMIT :most) AS counted",
        id=job_id,
        kinds=kinds,
        most=most,
    )


def chain_of(tx: Transaction, job_id: str) -> list[dict[str, Any]]:
    """The job and its automatic retries, the oldest first: {job_id, status, error_kind}."""
    ids = tx.column(
        "WITH RECURSIVE chain(id, retry_of, kind, depth) AS ("
        " SELECT id, retry_of, retry_kind, 0 FROM jobs WHERE id = :id"
        " UNION ALL SELECT j.id, j.retry_of, j.retry_kind, chain.depth + 1 FROM chain JOIN jobs j"
        " ON j.id = chain.retry_of WHERE chain.kind IN ('auto', 'continue') AND chain.depth < :most)"
        " SELECT id FROM chain ORDER BY depth DESC",
        id=job_id,
        most=CHAIN_MAX,
    )
    ids += tx.column(
        "WITH RECURSIVE chain(id, retried_by, depth) AS ("
        " SELECT id, retried_by, 0 FROM jobs WHERE id = :id"
        " UNION ALL SELECT j.id, j.retried_by, chain.depth + 1 FROM chain JOIN jobs j"
        " ON j.id = chain.retried_by WHERE chain.depth < :most)"
        " SELECT id FROM chain WHERE depth > 0 ORDER BY depth",
        id=job_id,
        most=CHAIN_MAX,
    )
    links = {
        row[0]: {"job_id": row[0], "status": row[1], "error_kind": row[2]}
        for row in tx.rows(
            "SELECT j.id, j.status, r.error_kind FROM jobs j LEFT JOIN job_runs r ON r.job_id = j.id "
            "WHERE j.id IN :ids",
            ids=ids,
        )
    }
    return [links[link_id] for link_id in ids]


def manual_retry_of(tx: Transaction, job_id: str) -> str | None:
    """The job that this one retries by hand; None if it is no manual retry."""
    row = tx.one("SELECT retry_of FROM jobs WHERE id = :id AND retry_kind = 'manual'", id=job_id)
    return None if row is None else row[0]


def status_and_delay(tx: Transaction, job_id: str) -> tuple[str, datetime | None] | None:
    """The status of a job and its `not_before`; None if it does not exist."""
    row = tx.one("SELECT status, not_before FROM jobs WHERE id = :id", id=job_id)
    return None if row is None else (row[0], tx.time(row[1]))


STEP_ORDER = ("kept_at", "started_at", "run_id", "length(name)", "name")
"""The order in which the steps of a chain were kept, as far as the rows tell it.

Within one millisecond the ids of runs tell which run was first, and of the uses of one name (`page`, `page#2`,
`page#10`) the shorter one was first. Nothing tells the order of different names.
"""


def last_step(tx: Transaction, root_id: str) -> tuple[str, datetime] | None:
    """The name of the last step that a chain has kept, and when; None if it has kept none."""
    row = tx.one(
        "SELECT name, kept_at FROM steps WHERE root_id = :id AND name NOT LIKE '$%' "
        f"ORDER BY {', '.join(f'{part} DESC' for part in STEP_ORDER)} LIMIT 1",
        id=root_id,
    )
    return None if row is None else (row[0], tx.instant(row[1]))
