"""A disk that stands still from one moment on: each flush of a process then takes five minutes longer.

`app` is for workers that `environment` was given to; its job `freeze_disk` is that moment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

from benchmarks.slow_disk import DELAY, LIBRARY, SOURCE
from holdbeat import Context
from tests.crash.jobs import app, note

__all__ = ["app", "environment"]

FROZEN = "300000000"
"""Microseconds."""


def environment(folder: Path, *, frozen: bool = False) -> dict[str, Any]:
    """What a process needs in its environment so that its disk can be frozen."""
    compiler = shutil.which("cc")
    assert compiler is not None, "These tests compile a small C file and found no compiler: install the package gcc."
    library = folder / "slow_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return {LIBRARY: str(library), DELAY: FROZEN if frozen else "0"}


@app.job
def freeze_disk(ctx: Context, diary: str) -> str:
    note(diary, "frozen", ctx.run_id)
    # The library reads this at each flush; os.environ sets it for C, too.
    os.environ[DELAY] = FROZEN
    return "done"


@app.job
async def freeze_disk_and_loop(ctx: Context, diary: str) -> None:
    freeze_disk(ctx, diary)
    threading.Event().wait()
