"""A run in which a test did not run is a failed run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

PASSES = "def test_passes(): ...\n"
SKIPPED = "import pytest\n@pytest.mark.skip(reason='too hard')\ndef test_hard(): ...\n"
SKIPPED_LATE = "import pytest\ndef test_hard():\n    pytest.skip('too hard')\n"
SKIPPED_MODULE = "import pytest\npytest.skip('too hard', allow_module_level=True)\n"
XFAILED = "import pytest\n@pytest.mark.xfail(reason='too hard')\ndef test_hard(): assert False\n"
XPASSED = "import pytest\n@pytest.mark.xfail(reason='too hard')\ndef test_hard(): ...\n"
RULED = "import pytest\n@pytest.mark.rule('INV-001')\ndef test_ruled(): ...\n"


def run(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(home), *options, str(home)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)


def test_a_run_without_skips_passes(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(PASSES)
    finished = run(tmp_path)
    assert finished.returncode == 0, finished.stdout


@pytest.mark.parametrize("source", [SKIPPED, SKIPPED_LATE, SKIPPED_MODULE, XFAILED, XPASSED])
def test_a_skipped_or_expected_failure_fails_the_run(tmp_path: Path, source: str) -> None:
    (tmp_path / "test_a.py").write_text(PASSES)
    (tmp_path / "test_b.py").write_text(source)
    finished = run(tmp_path)
    assert finished.returncode == 1, finished.stdout
    assert "tests that did not run" in finished.stdout
    assert "too hard" in finished.stdout


def test_skips_on_parallel_workers_fail_the_run_too(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(PASSES)
    (tmp_path / "test_b.py").write_text(SKIPPED_LATE)
    (tmp_path / "test_c.py").write_text(SKIPPED_MODULE)
    finished = run(tmp_path, "-n", "1")
    assert finished.returncode == 1, finished.stdout
    assert "test_b.py::test_hard" in finished.stdout
    assert "test_c.py: " in finished.stdout


def test_the_tests_of_one_rule_can_be_run_alone(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(PASSES)
    (tmp_path / "test_b.py").write_text(RULED)
    finished = run(tmp_path, "--rule", "INV-001")
    assert finished.returncode == 0, finished.stdout
    assert "1 passed, 1 deselected" in finished.stdout


STORES = """import pytest
@pytest.mark.parametrize('engine', ['sqlite', 'postgres'])
def test_both(engine): ...
def test_server(postgres_server): raise AssertionError('a PostgreSQL was started')
def test_none(): ...
"""


def test_the_option_store_leaves_out_what_needs_postgres_without_a_skip(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(STORES)
    finished = run(tmp_path, "--store", "sqlite")
    assert finished.returncode == 0, finished.stdout
    assert "2 passed, 2 deselected" in finished.stdout
