"""Pages of lists: keyset pagination over keys that never change.

Guards API-03: the next page begins behind the last key that was shown, so rows that come and go meanwhile move nobody
else. A cursor is valid only for its list and filters, and a changed cursor is refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from holdbeat.domain.bounds import check_whole_number
from holdbeat.domain.errors import Invalid
from holdbeat.domain.params import dumps
from holdbeat.store.reads.columns import Table
from holdbeat.store.transaction import Row, Transaction

T = TypeVar("T")
LIMIT = 50
LIMIT_MAX = 500
_LONGEST_CURSOR = 1000


@dataclass(slots=True)
class Page(Generic[T]):
    items: list[T]
    next_cursor: str | None = None


@dataclass(slots=True)
class Conditions:
    """A WHERE clause under construction."""

    parts: list[str] = field(default_factory=list)
    params: dict[str, Any] = field(default_factory=dict)

    def add(self, part: str, **params: Any) -> None:
        self.parts.append(part)
        self.params |= params

    @property
    def where(self) -> str:
        return " AND ".join(self.parts) if self.parts else "1 = 1"


def check_limit(limit: Any) -> int:
    """How many items a page may have; 50 if nobody says."""
    return LIMIT if limit is None else check_whole_number(limit, "limit", 1, LIMIT_MAX)


class Cursors:
    """Writes and reads the cursors of one list with one set of filters."""

    def __init__(self, kind: str, filters: Mapping[str, Any] | None = None) -> None:
        chosen = {name: value for name, value in (filters or {}).items() if value is not None}
        self._of = f"{kind}:{_digest(json.dumps(chosen, sort_keys=True, default=str))}"

    def write(self, *key: Any) -> str:
        return _encoded(dumps([self._of, *key]))

    def read(self, cursor: str | None, *kinds: type) -> list[Any] | None:
        """The key of the last item shown; None at the beginning. Refuses what did not come from here."""
        if cursor is None:
            return None
        try:
            if not isinstance(cursor, str) or not 0 < len(cursor) <= _LONGEST_CURSOR:
                raise ValueError
            padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
            text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
            digest, body = text[:16], text[16:]
            # Base64 has spare bits at its end: two texts may mean the same, and only one is ours.
            if digest != _digest(body) or _encoded(body) != cursor:
                raise ValueError
            parts: list[Any] = json.loads(body)
            of, key = parts[0], parts[1:]
        except (ValueError, UnicodeError, binascii.Error, RecursionError):
            raise _refused("has been changed or cut off") from None
        if of != self._of:
            raise _refused("belongs to another list or to other filters")
        if len(key) != len(kinds) or not all(type(part) is kind for part, kind in zip(key, kinds, strict=True)):
            raise _refused("has been changed or cut off")
        return key


def read_page(
    tx: Transaction,
    cursors: Cursors,
    columns: str,
    source: str,
    read: Callable[[Transaction, Row], T],
    conditions: Conditions,
    limit: int | None,
    cursor: str | None,
    *,
    key: str = "id",
    is_newest_first: bool = True,
    most_chars: int | None = None,
) -> Page[T]:
    """One page by id: ids sort by creation and never change. `read` makes an item of a row.

    The first column must be the id. A page of large rows ends early, at `most_chars`; its cursor leads to the others.
    """
    count = check_limit(limit)
    last = cursors.read(cursor, str)
    if last is not None:
        conditions.add(f"{key} {'<' if is_newest_first else '>'} :last_id", last_id=last[0])
    rows = tx.rows(
        f"SELECT {columns} FROM {source} WHERE {conditions.where} "
        f"ORDER BY {key} {'DESC' if is_newest_first else 'ASC'} LIMIT :count",
        count=count + 1,
        **conditions.params,
    )
    fitting = min(count, len(rows)) if most_chars is None else _fitting(rows[:count], most_chars)
    items = [read(tx, row) for row in rows[:fitting]]
    return Page(items, cursors.write(rows[fitting - 1][0]) if len(rows) > fitting else None)


def read_table_page(
    tx: Transaction,
    cursors: Cursors,
    table: Table[T],
    conditions: Conditions,
    limit: int | None,
    cursor: str | None,
    *,
    most_chars: int | None = None,
) -> Page[T]:
    """One page of the rows of a table that fulfil the conditions, the newest first."""
    return read_page(
        tx, cursors, table.columns, table.name, table.read, conditions, limit, cursor, most_chars=most_chars
    )


def _fitting(rows: list[Row], most_chars: int) -> int:
    """How many of these rows go into one page: at least one, and no more than fit into `most_chars`."""
    chars = 0
    for number, row in enumerate(rows):
        chars += sum(len(value) for value in row if isinstance(value, str))
        if chars > most_chars and number:
            return number
    return len(rows)


def _refused(what: str) -> Invalid:
    return Invalid(
        f"The cursor {what}. Pass the next_cursor of the page before as it is, with the same filters, or leave it out "
        "to begin anew.",
        code="bad_cursor",
        field="cursor",
    )


def _encoded(body: str) -> str:
    return base64.urlsafe_b64encode(f"{_digest(body)}{body}".encode()).decode().rstrip("=")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8, person=b"holdbeat cursor").hexdigest()
