"""A forked command is a process of its own, and says and does what a newly started one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import Forked, start_module

PROGRAM = """
import json, os, signal, sys, time
if sys.argv[1:] == ["sleep"]:
    print("ready", flush=True)
    signal.pause()
if sys.argv[1:] == ["fail"]:
    raise ValueError("told")
print(json.dumps({
    "argv": sys.argv[1:], "cwd": os.getcwd(), "zone": time.tzname[0], "environment": sorted(os.environ),
    "input": sys.stdin.read(), "path": sys.path[0], "name": __name__, "buffered": sys.stdout.line_buffering,
}))
print("to stderr", file=sys.stderr)
raise SystemExit(int(os.environ["CODE"]))
"""
PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "forked_program.py").write_text(PROGRAM)
    return tmp_path


def test_a_fork_differs_from_a_new_interpreter_in_nothing_that_a_command_sees(folder: Path) -> None:
    environment = {**os.environ, "CODE": "7", "TZ": "Europe/Vienna"}
    forked = Forked("forked_program", "a", "b c", cwd=folder, env=environment, **PIPES)
    started = subprocess.Popen(
        [sys.executable, "-m", "forked_program", "a", "b c"], cwd=folder, env=environment, **PIPES
    )
    results = [(*process.communicate("typed", timeout=60), process.returncode) for process in (forked, started)]
    assert results[0] == results[1]
    out, err, code = results[0]
    assert (err, code) == ("to stderr\n", 7)
    seen = json.loads(out)
    assert (seen["argv"], seen["input"], seen["cwd"]) == (["a", "b c"], "typed", str(folder))


def test_a_forked_process_ends_by_a_signal_of_its_own_and_leaves_others_alone(folder: Path) -> None:
    options: dict[str, Any] = {"cwd": folder, "stdout": subprocess.PIPE}
    first, second = Forked("forked_program", "sleep", **options), Forked("forked_program", "sleep", **options)
    for process in (first, second):
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    assert os.getpid() != first.pid != second.pid
    first.kill()
    first.communicate(timeout=60)
    assert first.returncode == -signal.SIGKILL
    assert second.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.01)
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=60)
    assert second.returncode == -signal.SIGINT


def test_an_error_of_a_forked_program_is_printed_and_is_its_exit_code(folder: Path) -> None:
    _, err = (process := Forked("forked_program", "fail", cwd=folder, **PIPES)).communicate(timeout=60)
    assert process.returncode == 1 and err.endswith("ValueError: told\n")


def test_a_command_whose_environment_changes_python_itself_gets_a_new_interpreter(folder: Path) -> None:
    process = start_module(
        "forked_program", cwd="/", env={**os.environ, "PYTHONPATH": str(folder), "CODE": "0"}, **PIPES
    )
    assert not isinstance(process, Forked)
    out, _ = process.communicate("", timeout=60)
    assert json.loads(out)["cwd"] == "/"
