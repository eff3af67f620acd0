"""One machine needs nothing but the file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import asyncio, sys

reached = []
sys.addaudithook(lambda event, args: reached.append(args[1]) if event == "socket.connect" else None)

from holdbeat import App

app = App("sqlite:///alone.db")


@app.job
async def double(number: int) -> int:
    return number * 2


async def main() -> None:
    async with app.running():
        done = await (await app.enqueue(double, number=21)).wait(30)
    print(done.status, done.run.result)
    app.close()


asyncio.run(main())
assert not [address for address in reached if isinstance(address, tuple)], reached
"""


@pytest.mark.rule("CON-001", "DEC-002")
def test_a_job_on_sqlite_runs_without_reaching_for_any_service(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, "alone.py"], cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "COMPLETED 42\n"), ran.stderr
    kept = {path.name.removesuffix("-wal").removesuffix("-shm") for path in tmp_path.iterdir()}
    assert kept - {"__pycache__"} == {"alone.py", "alone.db", "alone.db-run"}
