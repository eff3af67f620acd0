"""Policy: a class of the program that declares further limits and has a say in what may start (LIM-03)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Work:
    """A job that could start, or work that runs now."""

    type: str
    resource: str
    partition: str = ""
    weight: int = 1
    priority: int | None = None
    """Of a job that could start; None for what runs."""
    affinity: str = ""


class Policy:
    """Give one to `App(policy=…)`. Both methods may be left out.

    `may_start` is called within a claim, often, and perhaps again for the same job: answer at once, from the arguments
    alone, and change nothing.
    """

    def limits(self) -> Mapping[str, Mapping[str, Any]]:
        """Further limits by name, as the tables `[limits.NAME]` have them."""
        return {}

    def may_start(self, job: Work, running: Sequence[Work], now: datetime) -> bool:
        """Whether a job that has room in every limit may start beside what runs now on all workers."""
        return True
