"""Jobs by a text: a part of their id, their title, their type, a label or a param.

Guards the store against searches that read everything: the beginning of an id is a range of the primary key, and all
else is looked for among the newest jobs alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdbeat.domain.job import Job
from holdbeat.store.reads.job_filter import job_conditions
from holdbeat.store.reads.jobs import load_jobs
from holdbeat.store.reads.rows import LISTED_RESULT_BYTES
from holdbeat.store.transaction import Transaction

NEWEST = 10_000
MOST = 100
COUNTED = 10_000
"""Lists are counted up to here; beyond it a page says so instead of reading on."""
_PART_OF_ID = re.compile(r"[0-9a-f-]{4,36}")


def like(text: str) -> str:
    """A pattern for LIKE ... ESCAPE '!' that finds the text anywhere, whatever it contains."""
    return "%" + re.sub(r"([!%_])", r"!\1", text.lower()) + "%"


def find_jobs(tx: Transaction, text: str, filters: Mapping[str, Any] | None = None) -> list[Job]:
    """The jobs of the filters that the text finds, newest first.

    An id is found by its beginning at any age. Of the newest jobs, any part of id, title, type, labels or params is
    enough; the params of `http` jobs are not looked at, because they may hold credentials.
    """
    words = text.strip()
    if not words:
        return []
    conditions = job_conditions(tx, filters or {})
    ids: set[str] = set()
    digits = words.lower()
    if _PART_OF_ID.fullmatch(digits):
        rows = tx.rows(
            f"SELECT j.id FROM jobs AS j WHERE {conditions.where} AND j.id >= :low AND j.id < :high "
            "ORDER BY j.id DESC LIMIT :most",
            low=digits,
            high=f"{digits}g",
            most=MOST,
            **conditions.params,
        )
        ids |= {row[0] for row in rows}
    plain = "" if tx.dialect == "sqlite" else "::text"
    # A label is written as name=value, or as it stands in JSON.
    label = re.sub(r"^([^=\s]+)=(.+)$", r'"\1":"\2"', words)
    rows = tx.rows(
        f"SELECT id FROM (SELECT j.id, j.title, j.type, j.labels, j.params FROM jobs AS j WHERE {conditions.where} "
        "ORDER BY j.id DESC LIMIT :newest) AS n WHERE lower(n.title) LIKE :like ESCAPE '!' "
        "OR lower(n.type) LIKE :like ESCAPE '!' OR n.id LIKE :like ESCAPE '!' "
        f"OR replace(lower(n.labels{plain}), '\": \"', '\":\"') LIKE :label ESCAPE '!' "
        f"OR (n.type <> 'http' AND lower(n.params{plain}) LIKE :like ESCAPE '!') ORDER BY id DESC LIMIT :most",
        newest=NEWEST,
        like=like(words),
        label=like(label),
        most=MOST,
        **conditions.params,
    )
    ids |= {row[0] for row in rows}
    return load_jobs(tx, sorted(ids, reverse=True)[:MOST], result_bytes=LISTED_RESULT_BYTES)


def counts_by_status(tx: Transaction) -> dict[str, int]:
    """How many jobs are in each state that is rare, and in all; each up to COUNTED + 1."""
    pinned = {"QUEUED": "INDEXED BY jobs_queue", "RUNNING": "INDEXED BY jobs_running"}
    counts = {}
    for status in ("", "RUNNING", "QUEUED", "FAILED", "SKIPPED", "CANCELLED"):
        where = f"WHERE status = '{status}'" if status else ""
        if status in ("FAILED", "SKIPPED", "CANCELLED"):
            where += " AND status IN ('FAILED', 'SKIPPED', 'CANCELLED')"
        row = tx.one(
            f"SELECT count(*) FROM (SELECT 1 FROM jobs {pinned.get(status, '')} {where} LIMIT :most) AS counted",
            most=COUNTED + 1,
        )
        counts[status] = int(row[0]) if row else 0
    return counts
