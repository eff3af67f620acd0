"""Every file and function that docs/architecture.md and CONTRIBUTING.md name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DECISION = (ROOT / "docs" / "decisions" / "0010-one-operation-one-schema.md").read_text(encoding="utf-8")
NO_NAMES = {"utils", "helpers", "make", "src", "HOLDBEAT_TEST_PG", "cancelled"}
"""Words in code spans that name nothing in the package."""
PACKAGE = ROOT / "src" / "holdbeat"
FOLDERS = (PACKAGE, PACKAGE / "web" / "static", ROOT)


def named_files(text: str) -> list[str]:
    """The files in code spans, those with a bare name below the folder of the file that was named before them."""
    files, folder = [], ""
    for name in re.findall(r"`([\w/.*]+\.(?:py|js|sql|md|toml))`", text):
        if "/" in name:
            folder = name.rpartition("/")[0]
        is_at_root = (ROOT / name).exists() or (PACKAGE / name).exists() or not folder
        files.append(name if "/" in name or is_at_root else f"{folder}/{name}")
    return files


def is_there(name: str) -> bool:
    return any(any(folder.glob(name)) for folder in (*FOLDERS, ROOT / "docs"))


def test_every_file_of_the_page_exists() -> None:
    files = named_files(PAGE)
    assert len(files) > 60
    assert [name for name in files if not is_there(name)] == []


@pytest.mark.parametrize("page", [CONTRIBUTING, DECISION], ids=["contributing", "decision-0010"])
def test_every_file_named_by_those_who_say_where_to_add_something_exists(page: str) -> None:
    files = named_files(page.replace("holdbeat/", ""))
    assert files
    assert [name for name in files if not is_there(name)] == []


@pytest.mark.parametrize("page", [PAGE, CONTRIBUTING], ids=["architecture", "contributing"])
def test_every_name_in_a_code_span_is_defined_in_the_package(page: str) -> None:
    prose = re.sub(r"```.*?```", "", page, flags=re.S)
    spans = re.findall(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`", prose)
    names = {
        name for span in spans if not span.endswith((".py", ".js", ".toml")) for name in span.split(".")
    } - NO_NAMES
    files = (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.sql"))
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    defined = set(re.findall(r"(?:def |class |^ *)(\w+)\b(?:\(|:| = | [A-Z]+)", code, re.M))
    folders = {path.name for folder in (PACKAGE, ROOT / "tests") for path in folder.rglob("*") if path.is_dir()}
    assert sorted(names - defined - folders) == []


@pytest.mark.parametrize(
    "function, name", re.findall(r"`(?:\w+\.)?(\w+)` (?:\(|in |of )`?([\w/]+\.py)`", PAGE.replace("\n", " "))
)
def test_every_function_stands_in_the_file_that_the_page_names(function: str, name: str) -> None:
    source = (PACKAGE / name).read_text(encoding="utf-8")
    assert re.search(rf"^\s*(?:(?:async )?def|class) {function}\b|^{function}\b.* = ", source, re.M), source[:200]


def test_the_ten_questions_are_answered_with_files() -> None:
    table = PAGE.partition("## Ten questions")[2].partition("\n## ")[0]
    answers = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(answers) == 10
    assert all(named_files(answer) for answer in answers)
