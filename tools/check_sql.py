"""SQL is written in `holdbeat/store` and nowhere else in the package.

`python -m tools.check_sql` prints each string outside of it that is an SQL statement and exits with 1 if there is one;
with `--report` it exits with 0.

A string is taken for SQL if it begins with a statement's keyword in capitals that is followed by what such a statement
needs. Docstrings are left out. A variable part of an f-string stands for one word.

`bench` and `torture` are the exceptions: they measure and judge the store from outside, by its tables.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "holdbeat"
ALLOWED = (Path("store"), Path("bench"), Path("torture"))

_STATEMENT = re.compile(
    r"""\s*(?:
        SELECT\s+\S
      | INSERT\s+(?:OR\s+\w+\s+)?INTO\b
      | REPLACE\s+INTO\b
      | UPDATE\s+\S+\s+(?:AS\s+\w+\s+)?SET\b
      | DELETE\s+FROM\b
      | WITH\s+(?:RECURSIVE\s+)?\w+\s*(?:\([^)]*\)\s*)?AS\b
      | (?:CREATE|DROP|ALTER)\s+(?:\w+\s+){0,3}?(?:TABLE|INDEX|VIEW|TRIGGER|DATABASE|SCHEMA|FUNCTION|TYPE|ROLE)\b
      | (?:PRAGMA|VACUUM|ANALYZE|EXPLAIN|TRUNCATE|NOTIFY|LISTEN|UNLISTEN)\s+\w
      | SET\s+(?:LOCAL\s+|SESSION\s+)?\w+\s*(?:=|TO\b)
      | (?:BEGIN|SAVEPOINT|RELEASE|ROLLBACK\ TO)\s+(?:IMMEDIATE|EXCLUSIVE|DEFERRED|TRANSACTION|SAVEPOINT|\w+)\b
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True, order=True)
class Statement:
    """One place where SQL is written."""

    line: int
    text: str


def statements(source: str) -> list[Statement]:
    """Every SQL statement in a module, in the order of lines."""
    tree = ast.parse(source)
    skipped = _docstrings(tree)
    result = []
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in node.values)
        text = _text(node)
        if _STATEMENT.match(text):
            result.append(Statement(node.lineno, " ".join(text.split())[:60]))
    return sorted(result)


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    # A variable part stands for one word: f"UPDATE {table} SET …" is a statement too.
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "variable" for part in node.values)


def _docstrings(tree: ast.Module) -> set[int]:
    """The ids of strings that stand alone as a statement: docstrings, and texts below an attribute."""
    return {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def check(package: Path = PACKAGE) -> list[str]:
    """Each statement outside the store, as `path:line: text`."""
    places = []
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        if not any(inside.is_relative_to(allowed) for allowed in ALLOWED):
            places += [
                f"{inside}:{statement.line}: {statement.text}" for statement in statements(path.read_text("utf-8"))
            ]
    return places


def main(arguments: list[str] | None = None, package: Path = PACKAGE) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.check_sql", description="Finds SQL outside the store.")
    parser.add_argument("--report", action="store_true", help="print the places and exit with 0")
    options = parser.parse_args(arguments)
    places = check(package)
    for place in places:
        print(f"{place}: move this statement into holdbeat/store")
    return int(bool(places) and not options.report)


if __name__ == "__main__":
    sys.exit(main())
