"""Processes are found by the mark of their run, whatever they do just now."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdbeat.handlers.marked_processes import RUN_MARK, marked

pytestmark = pytest.mark.rule("EXE-02")


def test_a_process_that_begins_another_program_is_found_all_the_same(tmp_path: Path) -> None:
    """Between two programs it has no environment for a moment: one look in six found none."""
    program = tmp_path / "again"
    program.write_text(f"#!/bin/sh\nexec {program}\n")
    program.chmod(0o700)
    process = subprocess.Popen([str(program)], env={**os.environ, RUN_MARK: "run-that-execs"})
    try:
        assert [marked(["run-that-execs"]) for _ in range(200)] == [[process.pid]] * 200
    finally:
        process.kill()
        process.wait()
