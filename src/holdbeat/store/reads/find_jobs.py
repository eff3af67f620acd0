"""Jobs by a part of their id.

Guards the store against searches that read everything: the beginning of an id is a range of the primary key, and its
end is looked for among the newest jobs alone.
"""

from __future__ import annotations

import re

from holdbeat.domain.job import Job
from holdbeat.store.reads.jobs import load_jobs
from holdbeat.store.transaction import Transaction

NEWEST = 10_000
MOST = 50
_PART = re.compile(r"[0-9a-f-]{4,36}")


def find_jobs(tx: Transaction, part: str) -> list[Job]:
    """The jobs whose id begins with these digits, and of the newest those whose id ends with them, newest first."""
    digits = part.strip().lower()
    if not _PART.fullmatch(digits):
        return []
    begin = tx.rows(
        "SELECT id FROM jobs WHERE id >= :low AND id < :high ORDER BY id DESC LIMIT :most",
        low=digits,
        high=f"{digits}g",
        most=MOST,
    )
    end = tx.rows(
        "SELECT id FROM (SELECT id FROM jobs ORDER BY id DESC LIMIT :newest) AS newest WHERE id LIKE :end "
        "ORDER BY id DESC LIMIT :most",
        newest=NEWEST,
        end=f"%{digits}",
        most=MOST,
    )
    return load_jobs(tx, sorted({row[0] for row in [*begin, *end]}, reverse=True))
