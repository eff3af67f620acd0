"""One SQL text for two engines: the few places where SQLite and PostgreSQL differ, rewritten here.

Statements are written once, with named parameters, and these forms:

- `:name`                        a value
- `IN :name`                     membership in a list that is one parameter
- `rows(:name; id text, at time) AS r`   a list of tuples as a table
- `FOR UPDATE`, `FOR UPDATE SKIP LOCKED` row locks, which SQLite does not need: it has one writer
- `INDEXED BY name`              pins a plan in SQLite, where PostgreSQL has its own mind
- `json_text(column, :key)`      one member of a JSON object as text
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_ROWS = re.compile(r"rows\(:(\w+);([^)]*)\)\s+AS\s+(\w+)")
_IN = re.compile(r"\bIN :(\w+)")
_NAME = re.compile(r"(?<![:\w]):([a-z]\w*)")
_LOCK = re.compile(r"\bFOR UPDATE(?: OF \w+)?(?: SKIP LOCKED)?")
_INDEXED = re.compile(r"\bINDEXED BY \w+")
_JSON_TEXT = re.compile(r"\bjson_text\(([\w.]+), (:\w+)\)")

_POSTGRES_TYPES = {
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
    tables: dict[str, tuple[str, ...]]
    """Table parameters with their column names."""


@lru_cache(maxsize=2048)
def for_sqlite(text: str) -> Statement:
    lists: set[str] = set()
    tables: dict[str, tuple[str, ...]] = {}

    def rows(match: re.Match[str]) -> str:
        name, columns, alias = match.groups()
        names = tuple(column.split()[0] for column in columns.split(","))
        tables[name] = names
        chosen = ", ".join(f"value->>{index} AS {column}" for index, column in enumerate(names))
        return f"(SELECT {chosen} FROM json_each(:{name})) AS {alias}"

    def member(match: re.Match[str]) -> str:
        lists.add(match[1])
        return f"IN (SELECT value FROM json_each(:{match[1]}))"

    sql = _ROWS.sub(rows, text)
    sql = _IN.sub(member, sql)
    sql = _LOCK.sub("", sql)
    sql = _JSON_TEXT.sub(r"(\1 ->> \2)", sql)
    return Statement(sql, frozenset(lists), tables)


@lru_cache(maxsize=2048)
def for_postgres(text: str) -> Statement:
    tables: dict[str, tuple[str, ...]] = {}

    def rows(match: re.Match[str]) -> str:
        name, columns, alias = match.groups()
        pairs = [column.split() for column in columns.split(",")]
        names = tuple(pair[0] for pair in pairs)
        tables[name] = names
        arrays = ", ".join(f":{name}__{column}::{_POSTGRES_TYPES[kind]}[]" for column, kind in pairs)
        return f"unnest({arrays}) AS {alias}({', '.join(names)})"

    sql = _ROWS.sub(rows, text.replace("%", "%%"))
    sql = _IN.sub(r"= ANY(:\1)", sql)
    sql = _INDEXED.sub("", sql)
    sql = _JSON_TEXT.sub(r"(\1 ->> \2)", sql)
    sql = _NAME.sub(r"%(\1)s", sql)
    return Statement(sql, frozenset(), tables)
