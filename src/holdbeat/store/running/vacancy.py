"""The vacancy of a worker: the question that a claim answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdbeat.domain.affinity import Affinity, AffinityTerms
from holdbeat.domain.lease import HTTP_RESOURCE, LeaseTerms


@dataclass(slots=True)
class Vacancy:
    """The work that a worker can take on now."""

    worker_id: str
    slots: Sequence[int]
    """Numbers of its free slots."""
    http_slots: Sequence[int] = ()
    """Numbers of its free slots in the lane for http calls, all below zero."""
    types: Sequence[str] = ()
    resources: Sequence[str] | None = None
    """Only these resources; None for all."""
    terms: LeaseTerms = field(default_factory=LeaseTerms)
    uses: Mapping[int, int] = field(default_factory=dict)
    """How often a slot was used before, for those that were."""
    affinities: Mapping[str, Affinity] = field(default_factory=dict)
    """What it ran last on each resource, where jobs have an affinity."""
    affinity_terms: AffinityTerms = field(default_factory=AffinityTerms)

    def permits(self, resource: str) -> bool:
        return self.resources is None or resource in self.resources

    def slots_for(self, resource: str) -> Sequence[int]:
        """The free slots that a job on this resource would take one of."""
        return self.http_slots if resource == HTTP_RESOURCE else self.slots


class FreeSlots:
    """The free slots of a vacancy as a claim hands them out."""

    __slots__ = ("_http", "_slots")

    def __init__(self, vacancy: Vacancy) -> None:
        self._slots = list(reversed(vacancy.slots))
        self._http = list(reversed(vacancy.http_slots))

    def of(self, resource: str) -> list[int]:
        """Those that a job on this resource may take; the next one is the last of the list."""
        return self._http if resource == HTTP_RESOURCE else self._slots
