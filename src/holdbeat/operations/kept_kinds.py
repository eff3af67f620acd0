"""Requests for jobs that differ in their params alone: what they share is checked and prepared once.

Clients send the same few kinds of jobs over and over. A request of a kind that is known needs a check of its params,
and the store writes all of that kind that wait for one commit column by column (`domain/uniform_batch.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # The name of a type alone: a command that reads need not load all there is about submissions.
    from holdbeat.domain.uniform_batch import SubmissionKind

KINDS_MAX = 256
_FIELDS = frozenset({"type", "params", "priority", "resource", "timeout_s", "weight"})
"""What a request may have to be of a kind. Other fields mostly differ from job to job."""

Key = tuple[Any, ...]


class KeptKinds:
    """The kinds of one store's requests."""

    def __init__(self) -> None:
        self._kinds: dict[Key, SubmissionKind] = {}

    def find(self, key: Key) -> SubmissionKind | None:
        try:
            return self._kinds.get(key)
        except TypeError:
            # A value that cannot be hashed: no field of a kind takes one.
            return None

    def keep(self, key: Key, kind: SubmissionKind) -> SubmissionKind:
        if len(self._kinds) >= KINDS_MAX:
            self._kinds.clear()
        self._kinds[key] = kind
        return kind


def key_of(request: Any, caller: str | None) -> Key | None:
    """What the requests of a kind have in common; None for a request with fields of its own."""
    if not isinstance(request, dict) or not request.keys() <= _FIELDS:
        return None
    # With their types: 1, 1.0 and True are equal, but not all of them are a priority.
    return (caller, *[(name, type(value), value) for name, value in request.items() if name != "params"])
