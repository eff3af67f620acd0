"""Processes are found by the mark of their run, whatever they do just now."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from pathlib import Path

import pytest

from holdbeat.handlers.marked_processes import _EXEC_PAUSES_S, RUN_MARK, marked

pytestmark = pytest.mark.rule("EXE-02")


def test_a_process_that_begins_another_program_is_found_all_the_same(tmp_path: Path) -> None:
    """Between two programs it has no environment for a moment: one look in six found none."""
    program = tmp_path / "again"
    program.write_text(f"#!/bin/sh\nexec {program}\n")
    program.chmod(0o700)
    run_id = f"run-that-execs-{secrets.token_hex(8)}"
    process = subprocess.Popen([str(program)], env={**os.environ, RUN_MARK: run_id})
    try:
        assert [marked([run_id]) for _ in range(200)] == [[process.pid]] * 200
    finally:
        process.kill()
        process.wait()


def test_a_process_without_any_environment_is_not_waited_for() -> None:
    """It looks like one between two programs, but stays so: each search would take a second."""
    process = subprocess.Popen(["sleep", "60"], env={})
    try:
        began = time.monotonic()
        assert [marked([f"nobody-{number}"]) for number in range(5)] == [[]] * 5
        assert time.monotonic() - began < 5 * sum(_EXEC_PAUSES_S)
    finally:
        process.kill()
        process.wait()
