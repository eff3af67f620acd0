"""Handlers that run in processes of their own, and so must be importable."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

from holdbeat import Context, RateLimited


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


def reports_on(ctx: Context, diary: str) -> None:
    """Notes its pid and the time again and again and reports all that can be reported; only SIGKILL ends it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    number = 0
    while True:
        with open(diary, "a") as file:
            file.write(f"{os.getpid()} {time.monotonic()}\n")
        number += 1
        ctx.log("line", number)
        ctx.progress(0.5, f"step {number}")
        threading.Thread(target=ctx.artifact, args=("file", str(number)), daemon=True).start()
        time.sleep(0.05)


def slot_number(ctx: Context) -> int | None:
    """The number of the slot, as a process of its own knows it."""
    return ctx.slot


def told_to_wait() -> None:
    """A call that is answered "later", in a process of its own."""
    raise RateLimited("come back", retry_after="1s")


def talk_in_process(ctx: Context) -> None:
    ctx.emit("once ")
    ctx.emit({"n": 1})
