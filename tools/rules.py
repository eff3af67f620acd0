"""Which test proves which rule: a rule that docs/rules.md calls built has one, and a mark names a real rule.

The tests are read, not imported, so the answer does not depend on what is installed.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tools.rule_demands import compare, missing

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\|\s*(?P<id>[A-Z]+-\d+)\s*\|\s*(?P<built>[^|]*?)\s*\|\s*(?P<text>.*?)\s*\|\s*$")


class Unreadable(Exception):
    """The list of rules or a mark cannot be understood; the sentence says where."""


@dataclass(frozen=True)
class Rule:
    """One line of docs/rules.md."""

    id: str
    is_built: bool
    text: str


@dataclass(frozen=True, order=True)
class Mark:
    """A test, and one rule that it claims to prove."""

    test: str
    rule: str


@dataclass(frozen=True)
class Report:
    """Rules and tests laid side by side."""

    rules: dict[str, Rule]
    tests: dict[str, list[str]] = field(default_factory=dict)
    unknown: list[Mark] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Demands of rules that no test meets yet."""
    demands_failed: list[str] = field(default_factory=list)

    @property
    def unproven(self) -> list[str]:
        """Rules that are built and that no test names."""
        return [rule.id for rule in self.rules.values() if rule.is_built and not self.tests.get(rule.id)]

    @property
    def not_built(self) -> list[str]:
        """Rules that are still to come."""
        return [rule.id for rule in self.rules.values() if not rule.is_built]

    @property
    def is_good(self) -> bool:
        return (
            not self.unproven
            and not self.unknown
            and not any(line.startswith("FAILED") for line in self.demands_failed)
        )


def read_rules(text: str) -> dict[str, Rule]:
    """The rules in the order of the document."""
    rules: dict[str, Rule] = {}
    for number, line in enumerate(text.splitlines(), 1):
        row = ROW.match(line)
        if row is None:
            continue
        if row["built"] not in ("yes", "no"):
            raise Unreadable(f"line {number}: built is {row['built']!r}; write yes or no")
        if row["id"] in rules:
            raise Unreadable(f"line {number}: {row['id']} is listed twice")
        if not row["text"]:
            raise Unreadable(f"line {number}: {row['id']} says nothing")
        rules[row["id"]] = Rule(row["id"], row["built"] == "yes", row["text"])
    if not rules:
        raise Unreadable("no line of the form `| INV-001 | yes | … |` found")
    return rules


def read_marks(source: str, name: str) -> Iterator[Mark]:
    """Every (test, rule) pair of one test module."""
    tree = ast.parse(source, filename=name)
    yield from _marks_in(tree.body, name, _pytestmark(tree.body, name))


def _marks_in(body: Iterable[ast.stmt], prefix: str, inherited: frozenset[str]) -> Iterator[Mark]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            own = _rules_named(node.decorator_list, prefix)
            yield from (Mark(f"{prefix}::{node.name}", rule) for rule in sorted(inherited | own))
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            own = _rules_named(node.decorator_list, prefix) | _pytestmark(node.body, prefix)
            yield from _marks_in(node.body, f"{prefix}::{node.name}", inherited | own)
        elif isinstance(node, ast.Assign):
            # A Hypothesis state machine becomes a test by `TestQueue = QueueMachine.TestCase`.
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id.startswith("Test"):
                    yield from (Mark(f"{prefix}::{target.id}", rule) for rule in sorted(inherited))


def _pytestmark(body: Iterable[ast.stmt], where: str) -> frozenset[str]:
    for node in body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        named = any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in targets)
        if named and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            return _rules_named([node.value], where)
    return frozenset()


def _rules_named(expressions: Iterable[ast.expr], where: str) -> frozenset[str]:
    """The ids in every `mark.rule(...)` below these expressions, those of single parameters included."""
    ids: set[str] = set()
    for call in (node for expression in expressions for node in ast.walk(expression)):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("mark.rule"):
            continue
        for argument in call.args:
            if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                raise Unreadable(f"{where} line {call.lineno}: rule ids must be written out as strings")
            ids.add(argument.value)
    return frozenset(ids)


def survey(rules_file: Path, tests: Path) -> Report:
    """Reads the list of rules and all tests below a directory."""
    rules = read_rules(rules_file.read_text(encoding="utf-8"))
    proofs: dict[str, list[str]] = defaultdict(list)
    unknown: list[Mark] = []
    for path in sorted(tests.rglob("test_*.py")):
        name = path.relative_to(tests.parent).as_posix()
        for mark in read_marks(path.read_text(encoding="utf-8"), name):
            if mark.rule in rules:
                proofs[mark.rule].append(mark.test)
            else:
                unknown.append(mark)
    return Report(rules, dict(proofs), unknown)


def with_demands(report: Report, package: Path, tests: Path, listed: Path) -> Report:
    """The same, with what the rules demand beyond a test at all."""
    built = {rule.id: rule.text for rule in report.rules.values() if rule.is_built}
    lacking = missing(built, report.tests, package, tests)
    known = [line for line in listed.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return replace(report, missing=lacking, demands_failed=list(compare(lacking, known)))


def _as_text(report: Report) -> Iterator[str]:
    for rule in report.rules:
        if tests := report.tests.get(rule):
            yield rule
            yield from (f"    {test}" for test in tests)
    built = len(report.rules) - len(report.not_built)
    yield f"{built} of {len(report.rules)} rules are built."
    if report.not_built:
        yield f"Not built yet: {', '.join(report.not_built)}"
    if report.missing:
        yield f"Missing ({len(report.missing)}): {', '.join(report.missing)}"
    yield from report.demands_failed
    for rule in report.unproven:
        yield f"FAILED: {rule} is built, but no test names it"
    for mark in report.unknown:
        yield f"FAILED: {mark.test} names {mark.rule}, which is not in the list of rules"


def _as_json(report: Report) -> str:
    answer = {
        "rules": [
            {"id": rule.id, "built": rule.is_built, "rule": rule.text, "tests": report.tests.get(rule.id, [])}
            for rule in report.rules.values()
        ],
        "not_built": report.not_built,
        "missing": report.missing,
        "unproven": report.unproven,
        "unknown": [{"test": mark.test, "rule": mark.rule} for mark in report.unknown],
        "good": report.is_good,
    }
    return json.dumps(answer, indent=2, ensure_ascii=False)


def main(arguments: list[str] | None = None) -> int:
    """Prints rule → tests; 1 if a built rule has no test or a mark names no rule, 2 if unreadable."""
    parser = argparse.ArgumentParser(description="Print which test proves which rule.")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--rules", type=Path, default=ROOT / "docs" / "rules.md", help="the list of rules")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests", help="the directory of tests")
    parser.add_argument("--package", type=Path, default=ROOT / "src" / "holdbeat", help="the code that names rules")
    parser.add_argument("--missing", type=Path, help="the list of what is known to be missing; it may only shrink")
    options = parser.parse_args(arguments)
    try:
        report = survey(options.rules, options.tests)
        if options.missing is not None:
            report = with_demands(report, options.package, options.tests, options.missing)
    except (Unreadable, OSError, SyntaxError) as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 2
    print(_as_json(report) if options.json else "\n".join(_as_text(report)))
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
