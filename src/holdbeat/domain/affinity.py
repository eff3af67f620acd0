"""Affinity: a worker goes on with what it has loaded, such as a model, while that makes nobody wait for long.

Guards LIM-11. Pure: what ran last is handed in, and what ran last then is returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdbeat.domain.lease import Claim


@dataclass(frozen=True, slots=True)
class Affinity:
    """The affinity of the jobs that a worker ran last on a resource, and how many ran in a row."""

    last: str
    run: int


@dataclass(frozen=True, slots=True)
class AffinityTerms:
    wait_s: float = 60
    """A job that has waited longer goes first, whatever the worker has loaded."""
    run: int = 20
    """So many in a row at the most are preferred."""


DEFAULT_AFFINITY_TERMS = AffinityTerms()


class Followed:
    """Affinities brought up to date by started jobs: how often a worker kept its affinity and changed it."""

    def __init__(self, before: Mapping[str, Affinity]) -> None:
        self.now = dict(before)
        self.kept: dict[str, int] = {}
        self.switches: dict[str, int] = {}

    def start(self, started: Iterable[tuple[str, str]]) -> None:
        """Takes in resource and affinity of each job in the order of their start; those without one do not matter."""
        for resource, affinity in started:
            if not affinity:
                continue
            before = self.now.get(resource)
            is_same = before is not None and before.last == affinity
            self.now[resource] = Affinity(affinity, before.run + 1 if before is not None and is_same else 1)
            if before is not None:
                counts = self.kept if is_same else self.switches
                counts[resource] = counts.get(resource, 0) + 1


def followed(before: Mapping[str, Affinity], claims: Iterable[Claim]) -> Followed:
    """The affinities of a worker after it has started these jobs."""
    after = Followed(before)
    after.start((claim.lease.resource, claim.work.affinity) for claim in claims if claim.work.affinity)
    return after


def preferred_more(affinity: Affinity, terms: AffinityTerms, longest_wait_s: float) -> int:
    """How many more jobs of this affinity may start before the others; the longest of these has waited so long."""
    return 0 if longest_wait_s > terms.wait_s else max(0, terms.run - affinity.run)
