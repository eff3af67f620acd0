"""Batches of jobs that differ in their params alone: what they share is kept once.

Most large batches are of this kind. An object of forty fields for each of their jobs, and the garbage collector's way
through all of them, took three times as long as the rest of the submission. Both batches are sequences of ordinary
items, each made when it is read; a change of such an item changes nothing in the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdbeat.domain.job import NewJob
from holdbeat.domain.submission import Submission

if TYPE_CHECKING:
    from holdbeat.domain.views import UniformJobText

T = TypeVar("T")


class _UniformBatch(Sequence[T]):
    """`model` has all that the items share; an item is the model with its own params."""

    def __init__(self, model: T, params: Sequence[dict[str, Any]]) -> None:
        self.model = model
        self.params = params

    def __len__(self) -> int:
        return len(self.params)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._item(number) for number in range(len(self))[index]]
        return self._item(range(len(self))[index])

    def _item(self, number: int) -> T:
        raise NotImplementedError


@dataclass(slots=True)
class PreparedKind:
    """The checked form of calls with the same options and version of their type, kept for the calls that follow."""

    type_announced_at: datetime | None
    model: NewJob
    columns: Mapping[str, Any] | None = None
    """What the rows of such jobs share."""
    text: UniformJobText | None = None
    """How their JSON is written."""


@dataclass(slots=True)
class SubmissionKind:
    """The common part of requests of one type with the same options, and the job made of it last."""

    submission: Submission
    prepared: PreparedKind | None = None


class UniformSubmissions(_UniformBatch[Submission]):
    """Requests without idempotency keys. Their params have been checked."""

    def __init__(self, kind: SubmissionKind, params: Sequence[dict[str, Any]]) -> None:
        super().__init__(kind.submission, params)
        self.kind = kind

    def _item(self, number: int) -> Submission:
        return replace(self.model, own={**self.model.own, "params": self.params[number]})


class UniformJobs(_UniformBatch[NewJob]):
    """Jobs to be stored, which differ in their params and so in their titles."""

    def __init__(self, kind: PreparedKind, params: Sequence[dict[str, Any]], titles: Sequence[str]) -> None:
        super().__init__(kind.model, params)
        self.kind = kind
        self.titles = titles

    def _item(self, number: int) -> NewJob:
        labels = dict(self.model.labels)
        return replace(self.model, params=self.params[number], title=self.titles[number], labels=labels)


def distinct_items(batch: Sequence[T]) -> Iterable[T]:
    """One item of a uniform batch, all items of any other: enough to check what does not depend on the params."""
    return (batch.model,) if isinstance(batch, _UniformBatch) else batch
