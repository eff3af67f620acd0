"""Changes of limits: what programs declare when they start, and what operators set.

Guards LIM-02: a change waits for the claims under way, so none counts by the old limits after it; it wakes all workers,
and ends nothing that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from holdbeat.domain import events
from holdbeat.domain.errors import Conflict, NotFound
from holdbeat.domain.limit import FIELDS, Limit, Origin, limit_of
from holdbeat.store import meta
from holdbeat.store.limits.in_force import COLUMNS, KEY, limit_of_row, row_of, rows_of
from holdbeat.store.limits.throttles import lift_throttles
from holdbeat.store.pausing import wait_for_claims
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Row, Transaction

CONCURRENCY = "concurrency"
"""The source of the limits that the setting `concurrency` declares: they are replaced as a whole."""
NAMED = "limits"
"""The source of limits that settings or code declare by name: they stay when another program does not know them."""


def declare_limits(
    tx: Transaction, policy: Iterable[Limit], named: Iterable[Limit], *, by: str, works: bool = True
) -> list[str]:
    """Stores what a program declares, and returns the names of the limits that changed. The newest start wins.

    A program that runs no jobs declares only where nobody has declared anything.
    """
    wait_for_claims(tx)
    is_first = meta.get(tx, KEY) is None
    if not works and not is_first:
        return []
    stored, set_by_operators = rows_of(tx, Origin.SETTINGS), rows_of(tx, Origin.OPERATOR)

    def row(limit: Limit, source: str) -> Row:
        version = _next_version(stored.get(limit.name), set_by_operators.get(limit.name))
        return row_of(replace(limit, version=version), source, tx.now, by)

    declared = {limit.name: row(limit, CONCURRENCY) for limit in policy}
    declared |= {limit.name: row(limit, NAMED) for limit in named}
    undeclared = [name for name, row in stored.items() if row[2] == CONCURRENCY and name not in declared]
    changed = [
        name
        for name, new in declared.items()
        if name not in stored or limit_of_row(stored[name]) != limit_of_row(new) or stored[name][2] != new[2]
    ]
    names = sorted([*undeclared, *changed])
    if not names and not is_first:
        return []
    if stored and names:
        tx.execute("DELETE FROM limits WHERE origin = 'settings' AND name IN :names", names=names)
    tx.insert("limits", COLUMNS, [declared[name] for name in changed])
    if not is_first:
        for name in names:
            before = limit_of_row(stored[name]) if name in stored else None
            after = limit_of_row(declared[name]) if name in declared else None
            _record(tx, name, before, after, Origin.SETTINGS, by)
    _renew(tx)
    return names


def set_limit(tx: Transaction, name: str, changes: Mapping[str, Any], *, by: str | None = None) -> Limit:
    """Changes fields of a limit, or makes a new one: it wins over what programs declare, until it is reset.

    Its throttles end. Without turns its weights go, too.
    """
    wait_for_claims(tx)
    set_row, declared = (rows_of(tx, origin).get(name) for origin in (Origin.OPERATOR, Origin.SETTINGS))
    row = set_row or declared
    before = None if row is None else limit_of_row(row)
    fields: dict[str, Any] = dict.fromkeys(FIELDS) if before is None else before.as_dict()
    if changes.get("fair") is False:
        fields["weights"] = None
    limit = replace(limit_of(name, {**fields, **changes}, Origin.OPERATOR), version=_next_version(set_row, declared))
    if set_row is not None:
        tx.execute("DELETE FROM limits WHERE origin = 'operator' AND name = :name", name=name)
    tx.insert("limits", COLUMNS, [row_of(limit, Origin.OPERATOR, tx.now, by)])
    lift_throttles(tx, name)
    if before != limit or set_row is None:
        _record(tx, name, before, limit, Origin.OPERATOR, by)
    _renew(tx)
    return limit


def reset_limit(tx: Transaction, name: str, *, by: str | None = None) -> Limit | None:
    """Takes back what an operator set; returns what settings declare instead, if they do.

    One that only settings declare by name is removed, until a program that declares it starts.
    """
    wait_for_claims(tx)
    set_row, declared = (rows_of(tx, origin).get(name) for origin in (Origin.OPERATOR, Origin.SETTINGS))
    row = set_row or declared
    if row is None:
        raise NotFound(f"There is no limit {name}.", limit=name)
    if set_row is None and row[2] == CONCURRENCY:
        raise Conflict(
            f"The limit {name} comes from the setting concurrency, and nobody has changed it. Change the setting, or "
            "set other values for it.",
            code="limit_is_declared",
            limit=name,
        )
    tx.execute("DELETE FROM limits WHERE name = :name AND origin = :origin", name=name, origin=row[1])
    lift_throttles(tx, name)
    after = None
    if set_row is not None and declared is not None:
        after = replace(limit_of_row(declared), version=_next_version(set_row, declared))
        tx.execute(
            "UPDATE limits SET version = :version WHERE name = :name AND origin = 'settings'",
            name=name,
            version=after.version,
        )
    _record(tx, name, limit_of_row(row), after, Origin.OPERATOR, by)
    _renew(tx)
    return after


def _record(
    tx: Transaction, name: str, before: Limit | None, after: Limit | None, origin: Origin, by: str | None
) -> None:
    tx.record(
        events.LIMIT_CHANGED,
        limit=name,
        before=None if before is None else before.as_dict(),
        after=None if after is None else after.as_dict(),
        origin=origin.value,
        by=by,
    )


def _next_version(*rows: Row | None) -> int:
    """The version of a limit after those that its rows have."""
    return 1 + max((limit_of_row(row).version for row in rows if row is not None), default=0)


def _renew(tx: Transaction) -> None:
    """Gives the rows a version that no other state of them ever had, not even one that was rolled back."""
    meta.put(tx, KEY, tx.new_id())
    tx.wake(Topic.READY)
