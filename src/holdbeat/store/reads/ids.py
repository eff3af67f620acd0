"""Whole ids from parts of them: people copy the beginning or the end of one."""

from __future__ import annotations

import re
from typing import Final, Literal

from holdbeat.domain.errors import Invalid
from holdbeat.domain.ids import is_id
from holdbeat.store.transaction import Row, Transaction

PART_OF_ID: Final = re.compile(r"[0-9a-f-]{4,36}")
ENDINGS_READ = 50_000
"""The end of an id is looked for among the newest of that many rows: no index leads to it."""

_SHORTEST_BESIDE_NAMES = 8
"""Of what has a name, so much of the id must be given: a word such as `cafe` is a name that does not exist."""

Noun = Literal[
    "job", "job run", "job group", "reservation", "question", "webhook", "delivery", "API key", "schedule",
    "job template",
]  # fmt: skip
_TABLES: Final[dict[Noun, str]] = {
    "job": "jobs",
    "job run": "job_runs",
    "job group": "job_groups",
    "reservation": "direct_reservations",
    "question": "questions",
    "webhook": "webhooks",
    "delivery": "deliveries",
    "API key": "api_keys",
    "schedule": "schedules",
    "job template": "job_templates",
}


def id_by_part(tx: Transaction, noun: Noun, part: str, shortest: int = 4) -> str | None:
    """The one id that begins like this, at any age, or else ends like this, of the newest. Several are refused."""
    digits = part.lower()
    if len(digits) < shortest or not PART_OF_ID.fullmatch(digits):
        return None
    table = _TABLES[noun]
    rows = tx.rows(f"SELECT id FROM {table} WHERE id >= :low AND id < :high LIMIT 2", low=digits, high=f"{digits}g")
    if not rows:
        rows = tx.rows(
            f"SELECT n.id FROM (SELECT id FROM {table} ORDER BY id DESC LIMIT :newest) AS n WHERE n.id LIKE :ending "
            "LIMIT 2",
            newest=ENDINGS_READ,
            ending=f"%{digits}",
        )
    if len(rows) > 1:
        raise Invalid(
            f"More than one {noun} has {part[:36]} in its id. Give more of it.", code="ambiguous_id", field="id"
        )
    return rows[0][0] if rows else None


def row_by_name(
    tx: Transaction, noun: Noun, columns: str, reference: str, *, locked: bool = False, by_part: bool = False
) -> Row | None:
    """The row with this id or this name; `by_part` also finds it by a part of the id."""
    column = "id" if is_id(reference) else "name"
    lock = " FOR UPDATE" if locked else ""
    query = f"SELECT {columns} FROM {_TABLES[noun]} WHERE {column} = :reference{lock}"
    row = tx.one(query, reference=reference)
    if row is None and by_part and (whole_id := id_by_part(tx, noun, reference, _SHORTEST_BESIDE_NAMES)) is not None:
        return row_by_name(tx, noun, columns, whole_id, locked=locked)
    return row
