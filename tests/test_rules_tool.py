"""`make rules` tells the truth: it fails exactly when a built rule is unproven or a mark names no rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import rules

LIST = """
# Rules
| id | built | rule |
| --- | --- | --- |
| AAA-001 | yes | The first holds. |
| AAA-002 | yes | The second holds. |
| BBB-01 | no | The third will hold. |
"""

PROVEN = """
import pytest

@pytest.mark.rule("AAA-001", "AAA-002")
def test_both_hold(): ...
"""


class Project:
    """A list of rules and a few test files."""

    def __init__(self, home: Path) -> None:
        self.rules = home / "rules.md"
        self.tests = home / "tests"
        self.tests.mkdir()
        self.rules.write_text(LIST)

    def add(self, source: str, name: str = "test_a.py") -> None:
        path = self.tests / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)

    def run(self, *options: str) -> int:
        return rules.main(["--rules", str(self.rules), "--tests", str(self.tests), *options])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_every_built_rule_with_a_test_passes(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.add(PROVEN)
    assert project.run() == 0
    output = capsys.readouterr().out
    assert "AAA-001\n    tests/test_a.py::test_both_hold" in output
    assert "2 of 3 rules are built." in output
    assert "Not built yet: BBB-01" in output


def test_a_built_rule_without_a_test_fails(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.add(PROVEN.replace(', "AAA-002"', ""))
    assert project.run() == 1
    assert "FAILED: AAA-002 is built, but no test names it" in capsys.readouterr().out


def test_a_mark_that_names_no_rule_fails(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.add(PROVEN)
    project.add('import pytest\n@pytest.mark.rule("CCC-01")\ndef test_c(): ...\n', "deep/down/test_c.py")
    assert project.run() == 1
    assert "FAILED: tests/deep/down/test_c.py::test_c names CCC-01" in capsys.readouterr().out


def test_a_rule_may_be_proven_before_it_is_called_built(project: Project) -> None:
    project.add(PROVEN + '\n@pytest.mark.rule("BBB-01")\ndef test_third(): ...\n')
    assert project.run() == 0


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ('pytestmark = pytest.mark.rule("X-1")\ndef test_a(): ...', "m::test_a"),
        ('pytestmark = [pytest.mark.slow, pytest.mark.rule("X-1")]\nasync def test_a(): ...', "m::test_a"),
        ('@pytest.mark.rule("X-1")\nclass TestA:\n    def test_b(self): ...', "m::TestA::test_b"),
        (
            'class TestA:\n    pytestmark = [pytest.mark.rule("X-1")]\n    def test_b(self): ...',
            "m::TestA::test_b",
        ),
        ('class TestA:\n    @pytest.mark.rule("X-1")\n    def test_b(self): ...', "m::TestA::test_b"),
        ('pytestmark = pytest.mark.rule("X-1")\nTestMachine = Machine.TestCase', "m::TestMachine"),
        (
            '@pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.rule("X-1"))])\ndef test_a(a): ...',
            "m::test_a",
        ),
    ],
)
def test_marks_are_found_wherever_pytest_finds_them(source: str, test: str) -> None:
    assert list(rules.read_marks(source, "m")) == [rules.Mark(test, "X-1")]


@pytest.mark.parametrize(
    "source",
    [
        'pytestmark = pytest.mark.rule("X-1")',
        '@pytest.mark.rule("X-1")\ndef make_a_job(): ...',
        '@pytest.mark.rule("X-1")\nclass Machine:\n    def test_b(self): ...',
    ],
)
def test_a_mark_on_what_is_no_test_proves_nothing(source: str) -> None:
    assert list(rules.read_marks(source, "m")) == []


def test_a_mark_that_cannot_be_read_is_refused(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.add("import pytest\n@pytest.mark.rule(RULE)\ndef test_a(): ...\n")
    assert project.run() == 2
    assert "written out as strings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (LIST.replace("| no |", "| soon |"), "write yes or no"),
        (LIST.replace("AAA-002", "AAA-001"), "listed twice"),
        (LIST.replace("The first holds.", ""), "says nothing"),
        ("# Rules\n", "found"),
    ],
)
def test_a_list_that_cannot_be_trusted_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(rules.Unreadable, match=complaint):
        rules.read_rules(text)


def test_programs_get_the_same_answer_as_json(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.add(PROVEN.replace(', "AAA-002"', ', "CCC-01"'))
    assert project.run("--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["good"] is False
    assert answer["not_built"] == ["BBB-01"]
    assert answer["unproven"] == ["AAA-002"]
    assert answer["unknown"] == [{"test": "tests/test_a.py::test_both_hold", "rule": "CCC-01"}]
    assert answer["rules"][0]["tests"] == ["tests/test_a.py::test_both_hold"]


def test_the_rules_of_this_project_are_all_in_order() -> None:
    report = rules.survey(rules.ROOT / "docs" / "rules.md", rules.ROOT / "tests")
    assert report.unproven == []
    assert report.unknown == []


DEMANDING = """
| AAA-001 | yes | It is refused (409). |
| AAA-002 | yes | It holds. |
"""


@pytest.fixture
def demanding(tmp_path: Path) -> Path:
    """A project whose domain names AAA-001 and whose store names AAA-002."""
    for name, text in {
        "rules.md": DEMANDING,
        "missing.txt": "",
        "code/domain/a.py": "# AAA-001",
        "code/store/b.py": "# AAA-002",
        "tests/conftest.py": "@pytest.fixture(params=['sqlite', 'postgres'])\ndef engine(): ...\n"
        "@pytest.fixture\ndef store(engine): ...\n",
        "tests/domain/test_a.py": '@pytest.mark.rule("AAA-001")\ndef test_a():\n    with raises(X): ...\n',
        "tests/test_b.py": '@pytest.mark.rule("AAA-002")\ndef test_b(store): ...\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def judged(project: Path) -> int:
    options = ("rules", "rules.md"), ("tests", "tests"), ("package", "code"), ("missing", "missing.txt")
    return rules.main([word for name, place in options for word in (f"--{name}", str(project / place))])


def test_rules_whose_demands_are_met_pass(demanding: Path) -> None:
    assert judged(demanding) == 0


@pytest.mark.parametrize(
    ("file", "text", "lacking"),
    [
        (
            "tests/domain/test_a.py",
            '@pytest.mark.rule("AAA-001")\ndef test_a(): ...\n',
            "AAA-001 demands a test: refusal",
        ),
        ("tests/test_b.py", '@pytest.mark.rule("AAA-002")\ndef test_b(): ...\n', "AAA-002 demands a test: both stores"),
        ("code/domain/a.py", "# AAA-001 AAA-002", "AAA-002 demands a test: unit test"),
    ],
)
def test_a_demand_that_no_test_meets_fails_unless_it_is_listed(
    demanding: Path, capsys: pytest.CaptureFixture[str], file: str, text: str, lacking: str
) -> None:
    (demanding / file).write_text(text)
    assert judged(demanding) == 1
    assert f"FAILED: {lacking}" in capsys.readouterr().out
    (demanding / "missing.txt").write_text(lacking.replace(" demands a test:", "") + "\n")
    assert judged(demanding) == 0


def test_what_is_listed_and_no_longer_missing_is_said(demanding: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (demanding / "missing.txt").write_text("AAA-001 refusal\n")
    assert judged(demanding) == 0
    assert "NOTE: AAA-001 refusal is no longer missing" in capsys.readouterr().out
