"""Waiting for what other processes and threads do, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 60.0


def eventually(look: Callable[[], T | None], within_s: float = PATIENCE_S, details: Callable[[], str] = str) -> T:
    """The first true value that `look` returns; `details` are for the message if there is none in time."""
    give_up = time.monotonic() + within_s
    while not (result := look()):
        assert time.monotonic() < give_up, f"nothing came within {within_s} s\n{details()}"
        time.sleep(0.02)
    return result
