"""The limits in force, read from their rows.

Guards LIM-01: every worker goes by the rows, whatever its own settings say. A process keeps what it read under the
version of the rows; a claim reads that version in its first statement, behind a lock that a change of limits takes
exclusively, so it never counts by outdated limits.
"""

from __future__ import annotations

import json
from typing import Any

from holdbeat.domain.limit import Limit, Limits, Origin
from holdbeat.domain.params import dumps
from holdbeat.domain.rate import Rate
from holdbeat.store.transaction import Row, Transaction

KEY = "limits"
VERSION = f"(SELECT value FROM meta WHERE key = '{KEY}')"
"""Names the rows as they are; each change gives them a new one. Null while no program has declared any."""

COLUMNS = (
    "name", "origin", "source", "resource", "type", "slots", "rate_count", "rate_per_s", "rate_burst", "per_partition",
    "fair", "changed_at", "changed_by", "weights", "version",
)  # fmt: skip
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM limits"


def limits_in_force(tx: Transaction) -> Limits:
    """The limits that hold now. In a store for which no program has declared any, those of the own settings."""
    row = tx.one(f"SELECT {VERSION}")
    return limits_of_version(tx, row[0] if row else None)


def limits_of_version(tx: Transaction, version: str | None) -> Limits:
    """The limits of this version, which was just read; from memory if they are known."""
    if version is None:
        return tx.terms.limits
    known = tx.terms.known_limits
    if known is None or known.version != version:
        known = tx.terms.known_limits = Limits(combined(tx.rows(_SELECT)), version)
    return known


def combined(rows: list[Row]) -> list[Limit]:
    """One limit for each name: what an operator set, or what settings declare."""
    limits: dict[str, Limit] = {}
    for row in sorted(rows):
        limit = limit_of_row(row)
        if limit.name not in limits or limit.origin is Origin.OPERATOR:
            limits[limit.name] = limit
    return list(limits.values())


def rows_of(tx: Transaction, origin: Origin) -> dict[str, Row]:
    """The rows of one origin by name."""
    return {row[0]: row for row in tx.rows(f"{_SELECT} WHERE origin = :origin ORDER BY name", origin=origin.value)}


def limit_of_row(row: Row) -> Limit:
    """A row of COLUMNS as a Limit."""
    rate = None if row[6] is None else Rate(int(row[6]), float(row[7]), int(row[8] or 0))
    weights = json.loads(row[13]) if row[13] else None
    return Limit(row[0], row[3], row[4], row[5], rate, bool(row[9]), bool(row[10]), weights, Origin(row[1]), row[14])


def row_of(limit: Limit, source: str, at: Any, by: str | None) -> Row:
    """A Limit as a row of COLUMNS."""
    rate = limit.rate
    return (
        limit.name, limit.origin.value, source, limit.resource, limit.type, limit.slots,
        None if rate is None else rate.count, None if rate is None else rate.per_s,
        None if rate is None else rate.burst, limit.per_partition, limit.fair, at, by,
        None if limit.weights is None else dumps(limit.weights), limit.version,
    )  # fmt: skip
