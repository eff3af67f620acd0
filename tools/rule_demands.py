"""What a rule demands of its tests, and which of it is missing.

- A rule that a module of the domain names needs a unit test (tests/domain).
- A rule that a module of the store names needs a test that runs on both stores.
- A rule that forbids something needs a test that sees it refused.

What is missing today is listed in tools/rules_missing.txt. That list may only shrink: what is missing and not listed
fails, and what is listed and no longer missing is said, to be taken off.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

UNIT, BOTH_STORES, REFUSAL = "unit test", "both stores", "refusal"
_ID = re.compile(r"\b[A-Z]+-\d+\b")
_FORBIDS = re.compile(r"\brefuse[sd]?\b|\((?:4\d\d)\)|\bnever\b|\bcannot\b", re.IGNORECASE)
_REFUSED = re.compile(r"raises\(|problem_of\(|status_code == 4|code=[1-5]\b|refus|IntegrityError|ConstraintError")


def named_in(folder: Path) -> set[str]:
    """The rules that the modules of a folder name."""
    return {rule for path in folder.rglob("*.py") for rule in _ID.findall(path.read_text(encoding="utf-8"))}


class TestSources:
    """The tests of a project by their names, as `tools.rules` writes them."""

    __test__ = False

    def __init__(self, tests: Path) -> None:
        self._root = tests.parent
        self._sources: dict[str, str] = {}
        self._arguments: dict[str, set[str]] = {}
        self._fixtures: dict[str, dict[str, set[str]]] = {}
        for path in sorted(tests.rglob("*.py")):
            self._read(path)

    def _read(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(self._root).as_posix()
        fixtures = self._fixtures.setdefault(name, {})
        for node, prefix in _functions(ast.parse(text).body, name):
            arguments = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
            decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
            if "fixture" in decorators:
                both = {"sqlite", "postgres"} if "sqlite" in decorators and "postgres" in decorators else set()
                fixtures[node.name] = arguments | both
            self._sources[f"{prefix}::{node.name}"] = ast.unparse(node)
            is_both = "'sqlite'" in decorators and "'postgres'" in decorators
            self._arguments[f"{prefix}::{node.name}"] = arguments | ({"sqlite", "postgres"} if is_both else set())

    def runs_on_both(self, test: str) -> bool:
        """Whether a fixture that it uses, however far away, has a parameter for each store."""
        places = self._places(test)
        seen: set[str] = set()
        left = set(self._arguments.get(test, ()))
        while left:
            name = left.pop()
            if name not in seen:
                seen.add(name)
                left |= next((place[name] for place in places if name in place), set())
        return {"sqlite", "postgres"} <= seen

    def _places(self, test: str) -> list[dict[str, set[str]]]:
        """The fixtures that the test can see: its own module's, then those of each conftest above it."""
        module = test.partition("::")[0]
        folders = [parent.as_posix() for parent in Path(module).parents]
        return [self._fixtures.get(module, {}), *(self._fixtures.get(f"{f}/conftest.py", {}) for f in folders)]

    def refuses(self, test: str) -> bool:
        return _REFUSED.search(self._sources.get(test, test)) is not None


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, prefix
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}::{node.name}")


def missing(rules: dict[str, str], proofs: dict[str, list[str]], package: Path, tests: Path) -> list[str]:
    """What the built rules (id and text) still lack, one line each: the id and the demand."""
    sources = TestSources(tests)
    in_domain, in_store = named_in(package / "domain"), named_in(package / "store")
    lines = []
    for rule, text in rules.items():
        marked = proofs.get(rule, [])
        if rule in in_domain and not any(test.startswith(f"{tests.name}/domain/") for test in marked):
            lines.append(f"{rule} {UNIT}")
        if rule in in_store and not any(sources.runs_on_both(test) for test in marked):
            lines.append(f"{rule} {BOTH_STORES}")
        if _FORBIDS.search(text) and not any(sources.refuses(test) for test in marked):
            lines.append(f"{rule} {REFUSAL}")
    return lines


def compare(found: list[str], listed: list[str]) -> Iterator[str]:
    """What is wrong with the list of what is missing."""
    for line in sorted(set(found) - set(listed)):
        rule, _, demand = line.partition(" ")
        yield f"FAILED: {rule} demands a test: {demand}. Add one and mark it"
    for line in sorted(set(listed) - set(found)):
        yield f"NOTE: {line} is no longer missing; take it off tools/rules_missing.txt"
