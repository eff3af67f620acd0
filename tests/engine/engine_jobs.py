"""Handlers that run in processes of their own, and so must be importable."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path


def polite(mark: str) -> None:
    """Ends at SIGTERM, and says that it came."""
    Path(mark).write_text("begun")
    try:
        time.sleep(60)
    finally:
        Path(mark).write_text("told")


def unsubscribe(mark: str) -> None:
    """Hears nothing but SIGKILL."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(mark).write_text("begun")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)
