"""Notes of handlers about their runs: lines in files that no store knows of, one file for each process.

A line is one write to a file opened for appending, so a process that is killed leaves whole lines behind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdbeat.domain.clock import SystemClock

FOLDER = "TORTURE_WITNESS"
PROCESS = "TORTURE_PROCESS"
"""Environment variables: where to write, and the name of this process. Children of a handler inherit them."""

_clock = SystemClock()
_descriptors: dict[tuple[int, str], int] = {}


def note(kind: str, **fields: Any) -> None:
    """Writes one line, if this process was told where."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return
    process = os.environ[PROCESS]
    key = (os.getpid(), folder)
    if key not in _descriptors:
        path = Path(folder) / f"{process}-{os.getpid()}.jsonl"
        _descriptors[key] = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    line = {
        "kind": kind, "process": process, "monotonic": _clock.monotonic(), "wall": _clock.now().timestamp(), **fields,
    }  # fmt: skip
    os.write(_descriptors[key], (json.dumps(line) + "\n").encode())


def read_notes(folder: Path, process: str = "*") -> Iterator[dict[str, Any]]:
    """All lines of all processes, or of one; a line that was cut off by a full disk is left out."""
    for path in sorted(folder.glob(f"{process}-*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue
