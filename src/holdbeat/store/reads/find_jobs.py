"""Jobs by a text: a part of their id, their title, their type, a label or a param.

Guards the store against searches that read everything: the beginning of an id is a range of the primary key, and all
else is looked for among the newest jobs alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdbeat.domain.job import Job
from holdbeat.store.reads.ids import PART_OF_ID
from holdbeat.store.reads.job_filter import LIST_FILTERS, job_conditions, refuse_unknown
from holdbeat.store.reads.jobs import load_jobs
from holdbeat.store.reads.pagination import Cursors, Page, check_limit
from holdbeat.store.reads.rows import LISTED_RESULT_BYTES
from holdbeat.store.transaction import Transaction

NEWEST = 10_000
MOST = 100
COUNTED = 10_000
"""Lists are counted up to here; beyond it a page says so instead of reading on."""


def like(text: str) -> str:
    """A pattern for LIKE ... ESCAPE '!' that finds the text anywhere, whatever it contains.

    Small letters are made as both stores make them: of A to Z alone.
    """
    return "%" + re.sub(r"([!%_])", r"!\1", re.sub(r"[A-Z]+", lambda letters: letters[0].lower(), text)) + "%"


def like_label(words: str) -> str:
    """A pattern for `label_column`: a label is written as name=value, or as it stands in JSON."""
    return like(re.sub(r"^([^=\s]+)=(.+)$", r'"\1":"\2"', words.strip()))


def label_column(tx: Transaction, column: str) -> str:
    """Labels as one text in small letters, without the blanks that PostgreSQL puts into JSON."""
    plain = "" if tx.dialect == "sqlite" else '::text COLLATE "C"'
    return f"replace(lower({column}{plain}), '\": \"', '\":\"')"


def search_jobs(
    tx: Transaction, text: str, filters: Mapping[str, Any], *, limit: int | None, cursor: str | None
) -> Page[Job]:
    """Pages of what a text finds among the jobs of the filters, the newest first.

    Each page looks at NEWEST jobs at the most, and its cursor goes on where it ended: a page may be short, or empty,
    and still have a next one.
    """
    count = min(check_limit(limit), MOST)
    chosen = refuse_unknown(filters, LIST_FILTERS)
    cursors = Cursors("job_search", {**chosen, "q": text})
    last = cursors.read(cursor, str)
    before = last[0] if last else None
    jobs = find_jobs(tx, text, chosen, before=before, limit=count)
    if len(jobs) == count:
        return Page(jobs, cursors.write(jobs[-1].id))
    end = _end_of_window(tx, chosen, before)
    return Page(jobs, None if end is None else cursors.write(end))


def _end_of_window(tx: Transaction, filters: Mapping[str, Any], before: str | None) -> str | None:
    """The oldest job that a page reads; None if there is no older one."""
    conditions = job_conditions(tx, filters)
    if before is not None:
        conditions.add("j.id < :before", before=before)
    rows = tx.rows(
        f"SELECT j.id FROM jobs AS j WHERE {conditions.where} ORDER BY j.id DESC LIMIT 2 OFFSET :offset",
        offset=NEWEST - 1,
        **conditions.params,
    )
    return rows[0][0] if len(rows) == 2 else None


def find_jobs(
    tx: Transaction,
    text: str,
    filters: Mapping[str, Any] | None = None,
    *,
    before: str | None = None,
    limit: int = MOST,
) -> list[Job]:
    """The jobs of the filters that the text finds, newest first; with `before`, those older than that id.

    An id is found by its beginning at any age. Of the newest jobs, any part of id, title, type, labels or params is
    enough; the params of `http` jobs are not looked at, because they may hold credentials.
    """
    words = text.strip()
    if not words:
        return []
    conditions = job_conditions(tx, filters or {})
    if before is not None:
        conditions.add("j.id < :before", before=before)
    ids: set[str] = set()
    digits = words.lower()
    if PART_OF_ID.fullmatch(digits):
        rows = tx.rows(
            f"SELECT j.id FROM jobs AS j WHERE {conditions.where} AND j.id >= :low AND j.id < :high "
            "ORDER BY j.id DESC LIMIT :most",
            low=digits,
            high=f"{digits}g",
            most=limit,
            **conditions.params,
        )
        ids |= {row[0] for row in rows}
    plain = "" if tx.dialect == "sqlite" else '::text COLLATE "C"'
    rows = tx.rows(
        f"SELECT id FROM (SELECT j.id, j.title, j.type, j.labels, j.params FROM jobs AS j WHERE {conditions.where} "
        "ORDER BY j.id DESC LIMIT :newest) AS n WHERE lower(n.title) LIKE :like ESCAPE '!' "
        "OR lower(n.type) LIKE :like ESCAPE '!' OR n.id LIKE :like ESCAPE '!' "
        f"OR {label_column(tx, 'n.labels')} LIKE :label ESCAPE '!' "
        f"OR (n.type <> 'http' AND lower(n.params{plain}) LIKE :like ESCAPE '!') ORDER BY id DESC LIMIT :most",
        newest=NEWEST,
        like=like(words),
        label=like_label(words),
        most=limit,
        **conditions.params,
    )
    ids |= {row[0] for row in rows}
    return load_jobs(tx, sorted(ids, reverse=True)[:limit], result_bytes=LISTED_RESULT_BYTES)


def counts_by_status(tx: Transaction) -> dict[str, int]:
    """How many jobs are in each rare state, and in all, up to COUNTED + 1; of many as they were shortly before."""
    return tx.terms.counts.get("by_status", lambda: _counts_by_status(tx))


def _counts_by_status(tx: Transaction) -> tuple[dict[str, int], int]:
    pinned = {"QUEUED": "INDEXED BY jobs_queue", "RUNNING": "INDEXED BY jobs_running"}
    counts = {}
    for status in ("", "RUNNING", "QUEUED", "FAILED", "SKIPPED", "CANCELLED"):
        where = f"WHERE status = '{status}'" if status else ""
        if status == "QUEUED":
            where += " AND priority >= 0"
        if status in ("FAILED", "SKIPPED", "CANCELLED"):
            where += " AND status IN ('FAILED', 'SKIPPED', 'CANCELLED')"
        counts[status] = tx.count(
            f"SELECT count(*) FROM (SELECT 1 FROM jobs {pinned.get(status, '')} {where} LIMIT :most) AS counted",
            most=COUNTED + 1,
        )
    return counts, sum(counts.values())
