"""The size check counts lines of files and functions, and fails only where it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_size

LONG = "def long():\n" + "    pass\n" * 60
SHORT = "def short():\n" + "    pass\n" * 59


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_function_of_61_lines_is_too_long_and_one_of_60_is_not() -> None:
    assert [excess.lines for excess in check_size.excess_of_functions("a.py", LONG)] == [61]
    assert list(check_size.excess_of_functions("a.py", SHORT)) == []


def test_methods_nested_and_async_functions_are_counted_without_their_decorators() -> None:
    method = "class A:\n    @property\n" + "".join(f"    {line}\n" for line in ("async " + LONG).splitlines())
    assert [excess.place for excess in check_size.excess_of_functions("a.py", method)] == ["a.py:3 long"]
    decorated = "@one\n@two\n" + SHORT
    assert list(check_size.excess_of_functions("a.py", decorated)) == []


def test_a_module_of_401_lines_is_too_long_and_a_test_file_of_500_is_not(tmp_path: Path) -> None:
    write(tmp_path / "src/a.py", "x = 1\n" * 401)
    write(tmp_path / "src/b.py", "x = 1\n" * 400)
    write(tmp_path / "tests/test_a.py", "x = 1\n" * 501)
    write(tmp_path / "tests/test_b.py", "x = 1\n" * 500)
    assert [(excess.place, excess.lines) for excess in check_size.check(tmp_path)] == [
        ("src/a.py", 401),
        ("tests/test_a.py", 501),
    ]


def test_a_long_test_function_is_allowed(tmp_path: Path) -> None:
    write(tmp_path / "tests/test_a.py", LONG)
    assert check_size.check(tmp_path) == []


def test_the_check_fails_on_excess_and_the_report_does_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "src/a.py", LONG)
    assert check_size.main([], tmp_path) == 1
    assert "src/a.py:1 long has 61 lines; at most 60 are allowed" in capsys.readouterr().out
    assert check_size.main(["--report"], tmp_path) == 0
    assert "src/a.py:1 long" in capsys.readouterr().out
    write(tmp_path / "src/a.py", SHORT)
    assert check_size.main([], tmp_path) == 0
