"""Only `domain/clock.py` reads a clock: every other module of Holdbeat is handed the time.

Names are followed through imports and aliases, and a bare reference counts as well as a call, because
`default_factory=time.time` reads the clock too, only later.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "holdbeat"
ALLOWED = Path("domain/clock.py")

CLOCKS = frozenset(
    f"time.{name}{suffix}" for name in ("time", "monotonic", "perf_counter", "clock_gettime") for suffix in ("", "_ns")
) | {
    "time.localtime",
    "time.gmtime",
    "time.ctime",
    "time.strftime",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
}
MODULES = frozenset({"time", "datetime"})


@dataclass(frozen=True, order=True)
class Reading:
    """One place where a clock is read."""

    line: int
    name: str


def readings(source: str) -> list[Reading]:
    """Every place in a module where a clock is read, in the order of lines."""
    tree = ast.parse(source)
    meanings = _imported_names(tree)
    result = set(_starred_imports(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            name = _full_name(node, meanings)
            if name in CLOCKS:
                result.add(Reading(node.lineno, name))
    return sorted(result)


def _imported_names(tree: ast.Module) -> dict[str, str]:
    meanings: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in MODULES:
                    meanings[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES and not node.level:
            for alias in node.names:
                meanings[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    # `instant = datetime` gives a clock another name; one such step is followed, in the order of the source.
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = _full_name(node.value, meanings)
            if name is not None:
                meanings[node.targets[0].id] = name
    return meanings


def _starred_imports(tree: ast.Module) -> Iterator[Reading]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES and node.names[0].name == "*":
            yield Reading(node.lineno, f"{node.module}.*")


def _full_name(node: ast.expr, meanings: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return meanings.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _full_name(node.value, meanings)
        return f"{owner}.{node.attr}" if owner else None
    return None


def main(package: Path = PACKAGE) -> int:
    """Prints each forbidden reading; 1 if there is one."""
    failed = False
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package) == ALLOWED:
            continue
        for reading in readings(path.read_text(encoding="utf-8")):
            failed = True
            print(f"{path}:{reading.line}: reads {reading.name}; take the time from a Clock that is handed in")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
