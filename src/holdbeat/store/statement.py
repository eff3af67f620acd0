"""One SQL text for two engines: the few places where SQLite and PostgreSQL differ, rewritten here.

Statements are written once, with named parameters, and these forms:

- `:name`                        a value
- `IN :name`                     membership in a list that is one parameter
- `rows(:name; id text, at time) AS r`   a list of tuples as a table
- `FOR UPDATE`, `FOR NO KEY UPDATE`, `FOR KEY SHARE`, each also `SKIP LOCKED`: row locks, which SQLite does not need: it
  has one writer
- `INDEXED BY name`              pins a plan in SQLite, where PostgreSQL has its own mind
- `json_text(column, :key)`      one member of a JSON object as text
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_ROWS = re.compile(r"rows\(:(\w+);([^)]*)\)\s+AS\s+(\w+)")
_IN = re.compile(r"\bIN :(\w+)")
_NAME = re.compile(r"(?<![:\w]):([a-z]\w*)")
_LOCK = re.compile(r"\bFOR (?:(?:NO KEY )?UPDATE|KEY SHARE)(?: OF \w+)?(?: SKIP LOCKED)?")
_INDEXED = re.compile(r"\bINDEXED BY \w+")
_JSON_TEXT = re.compile(r"\bjson_text\(([\w.]+), (:\w+)\)")

POSTGRES_TYPES = {
    "text": "text",
    "int": "bigint",
    "real": "double precision",
    "time": "timestamptz",
    "bool": "boolean",
    "json": "json",
}


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement as one engine wants it, and which of its parameters are lists or tables."""

    sql: str
    lists: frozenset[str]
    tables: dict[str, tuple[tuple[str, str], ...]]
    """Table parameters with the names and kinds of their columns."""


NONE: frozenset[str] = frozenset()


def columns_of(
    name: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]]
) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """A table parameter in two parts: values that are the same in all rows, and the columns that differ.

    Most columns of a batch are one value (the instant, the status), and engines take one value far faster than a
    column of it. The keys are the parameters' names; the first column always stays one.
    """
    constants: dict[str, Any] = {}
    varied: dict[str, tuple[Any, ...]] = {}
    for (column, _), values in zip(columns, zip(*rows, strict=True) if rows else [()] * len(columns), strict=True):
        if varied and values and values[0] == values[-1] and values.count(values[0]) == len(values):
            constants[f"{name}__{column}"] = values[0]
        else:
            varied[f"{name}__{column}"] = values
    return constants, varied


@lru_cache(maxsize=2048)
def for_sqlite(text: str, constants: frozenset[str] = NONE) -> Statement:
    """The text for SQLite; `constants` names columns of table parameters that are one value each."""
    lists: set[str] = set()
    tables: dict[str, tuple[tuple[str, str], ...]] = {}

    def rows(match: re.Match[str]) -> str:
        name, listed, alias = match.groups()
        tables[name] = columns = _columns(listed)
        varied = [column for column, _ in columns if f"{name}__{column}" not in constants]
        chosen = [f"value->>{index} AS {column}" for index, column in enumerate(varied)]
        if len(varied) == 1:
            chosen = [f"value AS {varied[0]}"]
        chosen += [f":{name}__{column} AS {column}" for column, _ in columns if f"{name}__{column}" in constants]
        return f"(SELECT {', '.join(chosen)} FROM json_each(:{name})) AS {alias}"

    def member(match: re.Match[str]) -> str:
        lists.add(match[1])
        return f"IN (SELECT value FROM json_each(:{match[1]}))"

    sql = _ROWS.sub(rows, text)
    sql = _IN.sub(member, sql)
    sql = _LOCK.sub("", sql)
    sql = _JSON_TEXT.sub(r"(\1 ->> \2)", sql)
    return Statement(sql, frozenset(lists), tables)


@lru_cache(maxsize=64)
def from_values(text: str, names: tuple[str, ...], count: int) -> tuple[str, int, tuple[int, ...]]:
    """An INSERT from one table parameter, as SQLite wants it for so many rows: their values are bound one by one, after
    those of `names`. With it how many columns the table has, and which of them are instants.

    For a few dozen rows it takes a sixth of the time of `json_each`, which parses each row again for each column.
    """
    columns: tuple[tuple[str, str], ...] = ()

    def rows(match: re.Match[str]) -> str:
        nonlocal columns
        columns = _columns(match[2])
        chosen = ", ".join(f"column{number} AS {column}" for number, (column, _) in enumerate(columns, 1))
        numbers = iter(range(len(names) + 1, len(names) + count * len(columns) + 1))
        tuples = (f"({', '.join(f'?{next(numbers)}' for _ in columns)})" for _ in range(count))
        return f"(SELECT {chosen} FROM (VALUES {', '.join(tuples)})) AS {match[3]}"

    sql = _LOCK.sub("", _ROWS.sub(rows, text))
    sql = _NAME.sub(lambda match: f"?{names.index(match[1]) + 1}", sql)
    return sql, len(columns), tuple(index for index, (_, kind) in enumerate(columns) if kind == "time")


@lru_cache(maxsize=2048)
def for_postgres(text: str, constants: frozenset[str] = NONE) -> Statement:
    """The text for PostgreSQL; `constants` names columns of table parameters that are one value each, and lists of one.

    A table of one row and a list of one value are written as values: PostgreSQL makes no general plan for an array, so
    it would plan the statement anew each time, and for more rows than there are.
    """
    lists: set[str] = set()
    tables: dict[str, tuple[tuple[str, str], ...]] = {}

    def rows(match: re.Match[str]) -> str:
        name, listed, alias = match.groups()
        tables[name] = columns = _columns(listed)
        varied = [(column, kind) for column, kind in columns if f"{name}__{column}" not in constants]
        arrays = ", ".join(f":{name}__{column}::{POSTGRES_TYPES[kind]}[]" for column, kind in varied)
        names = ", ".join(column for column, _ in varied)
        if len(varied) == len(columns):
            return f"unnest({arrays}) AS {alias}({names})"
        fixed = ", ".join(
            f":{name}__{column}::{POSTGRES_TYPES[kind]} AS {column}"
            for column, kind in columns
            if f"{name}__{column}" in constants
        )
        if not varied:
            return f"(SELECT {fixed}) AS {alias}"
        return f"(SELECT {names}, {fixed} FROM unnest({arrays}) AS {name}_rows({names})) AS {alias}"

    def member(match: re.Match[str]) -> str:
        lists.add(match[1])
        return f"= :{match[1]}" if match[1] in constants else f"= ANY(:{match[1]})"

    sql = _ROWS.sub(rows, text.replace("%", "%%"))
    sql = _IN.sub(member, sql)
    sql = _INDEXED.sub("", sql)
    sql = _JSON_TEXT.sub(r"(\1 ->> \2)", sql)
    sql = _NAME.sub(r"%(\1)s", sql)
    return Statement(sql, frozenset(lists), tables)


def _columns(listed: str) -> tuple[tuple[str, str], ...]:
    pairs = (column.split() for column in listed.split(","))
    return tuple((name, kind) for name, kind in pairs)
