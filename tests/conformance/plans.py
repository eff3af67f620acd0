"""How an engine means to run the statements of a verb: recorded while the verb really runs, then explained."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from holdbeat.store.adapter import PersistenceAdapter
from holdbeat.store.postgres.transaction import OPENING
from holdbeat.store.transaction import Transaction

_DATA = re.compile(r"\s*(SELECT|UPDATE|DELETE|WITH)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Plan:
    """One statement and its plan: for SQLite its lines, for PostgreSQL the nodes of its tree."""

    sql: str
    steps: tuple[str, ...]
    tables_read_whole: frozenset[str]
    sorts_table: bool
    """Whether rows that come from a table, rather than from a list that was handed in, are put in order."""
    indexes: frozenset[str]


class _Enough(Exception):
    """Ends the transaction, so that the explained verb changes nothing."""


def plans_of(store: PersistenceAdapter, verb: Callable[..., Any], *arguments: Any, **options: Any) -> list[Plan]:
    """The plan of every statement that the verb runs; nothing of it is stored."""
    plans: list[Plan] = []

    def explain(tx: Transaction) -> None:
        seen: list[tuple[str, Any]] = []
        connection: Any = tx.connection  # type: ignore[attr-defined]
        plans.clear()
        if tx.dialect == "sqlite":

            def trace(_: Any, sql: str, bindings: Any) -> bool:
                seen.append((sql, bindings))
                return True

            connection.exec_trace = trace
            verb(tx, *arguments, **options)
            connection.exec_trace = None
            plans.extend(_sqlite(connection, sql, bindings) for sql, bindings in _statements(seen))
        else:
            pipeline: Any = tx._pipeline  # type: ignore[attr-defined]
            send = pipeline.send

            def noted(sql: str, params: Any = None) -> Any:
                seen.append((sql, params))
                return send(sql, params)

            pipeline.send = noted
            verb(tx, *arguments, **options)
            plans.extend(_postgres(tx, send, sql, params) for sql, params in _statements(seen))
        raise _Enough

    try:
        store.write_sync(explain)
    except _Enough:
        return plans
    raise AssertionError("the verb was not explained")


def _statements(seen: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    done = set()
    for sql, params in seen:
        if _DATA.match(sql) and sql not in done and not sql.startswith(OPENING):
            done.add(sql)
            yield sql, params


def _sqlite(connection: Any, sql: str, bindings: Any) -> Plan:
    steps = tuple(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings))
    whole = set()
    for step in steps:
        scan = re.match(r"SCAN (\w+)", step)
        # A walk along an index that ends at a LIMIT reads only what it gives.
        walks = " INDEX " in step and "LIMIT" in sql
        if scan and not walks and "VIRTUAL TABLE" not in step:
            whole.add(scan[1])
    indexes = frozenset(name for step in steps for name in re.findall(r"INDEX (\w+)", step))
    return Plan(sql, steps, frozenset(whole), any("TEMP B-TREE FOR ORDER BY" in step for step in steps), indexes)


def _postgres(tx: Any, send: Callable[..., Any], sql: str, params: Any) -> Plan:
    cursor = send(f"EXPLAIN (FORMAT JSON) {sql}", params)
    tx._synchronise()  # the statements of a pipeline are sent together, at its next synchronisation
    row = cursor.fetchone()
    tree = (json.loads(row[0]) if isinstance(row[0], str) else row[0])[0]["Plan"]
    nodes = list(_nodes(tree))
    steps = tuple(f"{n['Node Type']} {n.get('Relation Name', '')} {n.get('Index Name', '')}".strip() for n in nodes)
    whole = frozenset(n["Relation Name"] for n in nodes if n["Node Type"] == "Seq Scan")
    sorts = any(
        n["Node Type"] in ("Sort", "Incremental Sort") and any("Relation Name" in inner for inner in _nodes(n))
        for n in nodes
    )
    return Plan(sql, steps, whole, sorts, frozenset(n["Index Name"] for n in nodes if "Index Name" in n))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", ()):
        yield from _nodes(inner)
