"""Files and functions stay small enough to be read in one go.

`python -m tools.check_size` prints each that is too long and exits with 1 if there is one; with `--report` it prints
the same, the longest first, and exits with 0.

A module of the package has at most 400 lines and a function there at most 60. A test file has at most 500: a test
repeats its setup in full so that it can be read alone, and a table of cases takes a line for each case. The length of
a test function is not limited, because some are one long story in order of time.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 400
FUNCTION_LINES = 60
TEST_FILE_LINES = 500


@dataclass(frozen=True)
class Excess:
    """A file or function that is longer than it may be."""

    place: str
    lines: int
    limit: int

    def __str__(self) -> str:
        return f"{self.place} has {self.lines} lines; at most {self.limit} are allowed"


def excess_of_file(name: str, source: str, limit: int) -> Iterator[Excess]:
    """The file itself, if it is too long."""
    lines = len(source.splitlines())
    if lines > limit:
        yield Excess(name, lines, limit)


def excess_of_functions(name: str, source: str, limit: int = FUNCTION_LINES) -> Iterator[Excess]:
    """Each function and method that is too long, counted from `def` to its last line, without decorators."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > limit:
                yield Excess(f"{name}:{node.lineno} {node.name}", lines, limit)


def check(root: Path = ROOT) -> list[Excess]:
    """Everything that is too long, the longest first."""
    too_long: list[Excess] = []
    for path in sorted((root / "src").rglob("*.py")):
        name, source = str(path.relative_to(root)), path.read_text(encoding="utf-8")
        too_long += excess_of_file(name, source, FILE_LINES)
        too_long += excess_of_functions(name, source)
    for path in sorted((root / "tests").rglob("*.py")):
        name, source = str(path.relative_to(root)), path.read_text(encoding="utf-8")
        too_long += excess_of_file(name, source, TEST_FILE_LINES)
    return sorted(too_long, key=lambda excess: excess.limit - excess.lines)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.check_size", description="Finds what is too long.")
    parser.add_argument("--report", action="store_true", help="print what is too long and exit with 0")
    options = parser.parse_args(arguments)
    too_long = check(root)
    for excess in too_long:
        print(excess)
    return int(bool(too_long) and not options.report)


if __name__ == "__main__":
    sys.exit(main())
