"""The import contracts cover every module: one that no layer names breaks them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("stray", ["holdbeat/stray.py", "holdbeat/store/stray.py"])
def test_a_module_that_no_layer_names_breaks_the_contracts(tmp_path: Path, stray: str) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "static", "templates"))
    (tmp_path / "src" / stray).write_text('"""Named by no layer."""\n')
    command = [
        str(Path(sys.executable).parent / "lint-imports"),
        "--no-cache",
        "--config",
        str(ROOT / "pyproject.toml"),
    ]
    answer = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 1, answer.stdout
    container = stray.removesuffix("/stray.py").replace("/", ".")
    assert f"{container}.stray" in answer.stdout or f"not listed as layers in {container}" in answer.stdout
    assert " kept, 1 broken." in answer.stdout
