"""A short form of `make chaos`: real processes under faults on each store, judged by the checker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.rule("OPS-06", "DEC-008", "REC-01", "LEASE-03", "CON-002", "TIME-02", "DEC-009", "GRP-01", "DEC-007")
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
@pytest.mark.timeout(400)
def test_promises_hold_while_processes_and_stores_fail(engine: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "HOLDBEAT_TEST_PG"}
    command = [sys.executable, "-m", "tests.chaos.chaos", "--json", "--engine", engine, "--minutes", "0.1"]
    ran = subprocess.run(
        [*command, "--seed", "7", "--rate", "15"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout, ran.stderr[-3000:]
    verdict = json.loads(ran.stdout.splitlines()[-1])
    assert verdict["violations"] == []
    assert verdict["unexpected"] == []
    assert verdict["drained"]
    assert verdict["counts"]["acknowledged"] > 20
    assert sum(verdict["faults"].values()) >= 4
