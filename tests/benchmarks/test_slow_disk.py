"""`--flush-ms`: every flush of the program takes longer, or the command says what it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.slow_disk import DELAY, LIBRARY

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, sys, time
from benchmarks.slow_disk import slow_down
slow_down(float(sys.argv[1]))
with open(sys.argv[2], "wb") as file:
    for flush in (os.fsync, os.fdatasync):
        file.write(b"x")
        file.flush()
        began = time.monotonic()
        flush(file.fileno())
        print(time.monotonic() - began)
print(os.environ.get("LD_PRELOAD", ""))
"""


def run(flush_ms: float, file: Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in (DELAY, LIBRARY)}
    environment |= {"PYTHONPATH": str(ROOT)} | ({"PATH": path} if path is not None else {})
    command = [sys.executable, "-c", PROGRAM, str(flush_ms), str(file)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_each_flush_takes_at_least_that_much_longer_and_the_library_is_removed(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        assert "found no compiler" in run(300, tmp_path / "file").stderr
        return
    fsync_s, fdatasync_s, library = run(300, tmp_path / "file").stdout.split()
    assert float(fsync_s) >= 0.3 and float(fdatasync_s) >= 0.3
    assert not Path(library).parent.exists()


def test_without_a_delay_the_program_runs_as_it_is(tmp_path: Path) -> None:
    fsync_s, fdatasync_s, library = run(0, tmp_path / "file").stdout.splitlines()
    assert float(fsync_s) > 0 and float(fdatasync_s) > 0
    assert library == ""


def test_without_a_compiler_the_command_says_what_to_install(tmp_path: Path) -> None:
    refused = run(1, tmp_path / "file", path="")
    assert refused.returncode == 1 and "install the package gcc" in refused.stderr
