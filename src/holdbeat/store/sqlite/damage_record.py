"""A note beside a SQLite store that a process found it damaged, or at risk of it, while it was in use.

SQLite may find no fault in such a file afterwards: it goes back to the last state of the log that it can read, without
the transactions behind it. So whoever looks later must be told (`holdbeat doctor`).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from datetime import datetime

from holdbeat.domain.clock import iso
from holdbeat.domain.errors import HoldbeatError

RECORDED = ("second_sqlite_library", "store_corrupt")


def record_path(path: str) -> str:
    return f"{path}-run/damage"


def record_damage(path: str, refusal: HoldbeatError, now: datetime) -> None:
    """Adds a line for the refusal, if it is of a kind after which jobs may be missing."""
    if refusal.code not in RECORDED:
        return
    line = {
        "at": iso(now),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "code": refusal.code,
        "detail": refusal.detail,
    }
    with contextlib.suppress(OSError):
        descriptor = os.open(record_path(path), os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def recorded_damage(path: str) -> list[str]:
    """The recorded damage, as sentences, oldest first."""
    try:
        with open(record_path(path), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except ValueError:
        return [f"{record_path(path)} cannot be read."]
    return [f"{line['at']}, process {line['pid']} on {line['host']}: {line['detail']}" for line in lines]


def forget_damage(path: str) -> None:
    """Deletes the record; called when another file, which is whole, has taken the store's place."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(record_path(path))
