"""Builds this process's Worker record, under an id that is never used again (host-pid-random)."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence

from holdbeat.domain.worker import Worker, WorkerKind
from holdbeat.engine.process_usage import memory_bytes


def this_worker(
    kind: str, *, slots: int, http_slots: int, types: Sequence[str], resources: Sequence[str] | None, version: str
) -> Worker:
    """This process as a worker, under a fresh id."""
    host = socket.gethostname()
    readable = "".join(c if c.isalnum() or c in "-." else "-" for c in host)[:40]
    return Worker(
        id=f"{readable}-{os.getpid()}-{secrets.token_hex(3)}",
        kind=WorkerKind(kind),
        host=host,
        pid=os.getpid(),
        slots=slots,
        http_slots=http_slots,
        types=tuple(types),
        resources=None if resources is None else tuple(resources),
        version=version,
        memory_bytes=memory_bytes(),
    )
