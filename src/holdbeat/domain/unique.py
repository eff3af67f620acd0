"""Unique jobs: how long a job keeps its key, and what a second one with the same key does."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum


class UniqueWhile(StrEnum):
    """How long a Job has its key."""

    QUEUED = "queued"
    """Until it starts."""
    UNFINISHED = "unfinished"
    """Until its chain has ended."""


class OnDuplicate(StrEnum):
    """What a submission does if a Job has its key already."""

    RETURN = "return"
    REFUSE = "refuse"
    REPLACE = "replace"
    PUSH_BACK = "push_back"


def pushed_back(
    created_at: datetime, not_before: datetime | None, wanted: datetime, longest: timedelta | None
) -> datetime:
    """The new start of a Job that is pushed back: never earlier than before, and not beyond `longest` in all."""
    start = wanted if not_before is None else max(not_before, wanted)
    if longest is None:
        return start
    last = created_at + longest
    return min(start, max(last, not_before or created_at))
