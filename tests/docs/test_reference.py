"""The pages of reference are in step with the program, and the pages of promises with the tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from holdbeat.domain import events
from holdbeat.domain.webhook import WEBHOOK_EVENTS
from tests.docs.pages import ROOT
from tools import write_reference

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def wanted() -> dict[Path, str]:
    return write_reference.pages()


@pytest.mark.parametrize("page", [write_reference.CLI, write_reference.API, write_reference.OPERATIONS], ids=str)
def test_the_reference_is_in_step_with_the_program(page: Path, wanted: dict[Path, str]) -> None:
    assert page.read_text("utf-8") == wanted[page], "run python -m tools.write_reference"


def test_every_verb_of_the_command_line_and_every_route_is_described(wanted: dict[Path, str]) -> None:
    cli, api = wanted[write_reference.CLI], wanted[write_reference.API]
    for verb in ("serve", "submit", "explain", "schedules preview", "keys create", "move-store"):
        assert f"# {verb}\n" in cli
    for route in ("POST /api/jobs", "POST /api/direct/{type}", "GET /readyz", "POST /jobs/{type}/trigger"):
        assert f"### `{route}`\n" in api


def test_every_event_is_explained() -> None:
    page = (DOCS / "operations.md").read_text("utf-8")
    names = {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    assert {name for name in names if f"`{name}`" not in page} == set()
    page = (DOCS / "webhooks.md").read_text("utf-8")
    assert {name for name in WEBHOOK_EVENTS if f"| `{name}` |" not in page} == set()


def test_every_metric_is_explained() -> None:
    source = (ROOT / "src/holdbeat/observe/metrics.py").read_text("utf-8")
    page = (DOCS / "operations.md").read_text("utf-8")
    names = set(re.findall(r'"(holdbeat_\w+)"', source))
    assert names
    assert {name for name in names if f"`{name}`" not in page and f"`{name}_total`" not in page} == set()


def marks_of(path: Path) -> set[str]:
    """The rules that the tests of a file name."""
    return {
        argument.value
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "rule"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def test_every_promise_names_rules_that_its_tests_prove() -> None:
    known = set(re.findall(r"^\| ([A-Z]+-\d+) \|", (DOCS / "rules.md").read_text("utf-8"), re.MULTILINE))
    rows = [
        line.split(" | ")
        for line in (DOCS / "guarantees.md").read_text("utf-8").splitlines()
        if line.startswith("| **")
    ]
    assert len(rows) > 10
    for row in rows:
        promise, rules = row[0], set(re.findall(r"[A-Z]+-\d+", row[2]))
        assert rules <= known, promise
        proved: set[str] = set()
        for link in re.findall(r"\]\(([^)]+)\)", row[3]):
            marks = marks_of((DOCS / link).resolve())
            assert marks & rules, f"{promise}: {link} proves none of {sorted(rules)}"
            proved |= marks
        assert rules <= proved, f"{promise}: {sorted(rules - proved)} is proved by none of the tests it names"
