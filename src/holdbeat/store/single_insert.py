"""New jobs that need nothing but their rows and Events: an engine may store them by one statement of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from holdbeat.store.topics import Topic

T = TypeVar("T")

SINGLE_INSERT_TOPICS = frozenset({Topic.READY, Topic.EVENTS})
"""The topics of processes that may wait for a single job."""


@dataclass(slots=True)
class SingleInsert(Generic[T]):
    """An insert in one statement, made only if the job type is still as this process read it.

    The statement may be run again under the same id after a lost answer: it stores the job once.
    """

    job_id: str
    columns: dict[str, Any]
    """The row of `jobs` without its position, which is drawn, and `created_at`, which is the database's time."""
    event: dict[str, Any]
    """The row of `events` without its time and the job's id."""
    type_announced_at: datetime
    """When the type was last changed, as far as this process knows."""
    answer: Callable[[int, datetime], T] = field(repr=False)
    """Makes the caller's answer of the position and the time."""


@dataclass(slots=True)
class UniformInsert(Generic[T]):
    """`SingleInsert` for jobs that differ in their params alone, of several callers."""

    job_ids: list[str]
    """In ascending order."""
    shared: Mapping[str, Any]
    """Columns of `jobs` that are the same for all of them."""
    params: list[str]
    titles: Sequence[str]
    event: dict[str, Any]
    type_announced_at: datetime
    answers: Callable[[Sequence[int], datetime], list[T]] = field(repr=False)
    """Makes the answer of each caller from the positions and the time."""
