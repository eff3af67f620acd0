"""Preference: among jobs of equal priority a worker takes first what it has loaded (LIM-11).

Nothing of this is read for a worker that has run no job with an affinity on the resource.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdbeat.domain import events
from holdbeat.domain.affinity import Affinity, AffinityTerms, followed, preferred_more
from holdbeat.domain.lease import Claim
from holdbeat.store.reads.rows import READY_SINCE
from holdbeat.store.running.lane_walk import AFFINITY, CREATED_AT, ID, PLACE, PRIORITY, RESOURCE, in_priority
from holdbeat.store.running.vacancy import Vacancy
from holdbeat.store.transaction import Row, Transaction

_SAME = (
    f"SELECT {PLACE} FROM jobs INDEXED BY jobs_affinity WHERE status = 'QUEUED' AND hold = 0 AND affinity <> '' "
    "AND resource = :resource AND type = :type AND effective_priority = :priority AND affinity = :affinity "
    "ORDER BY position, created_at, id LIMIT :count FOR UPDATE SKIP LOCKED"
)


@dataclass(frozen=True, slots=True)
class Preference:
    """A job that goes before another of its priority."""

    row: Row
    """Of PLACE."""
    over: str
    """The job that would have been next."""
    affinity: Affinity
    is_further: bool
    """Whether it was not among the first of its lane."""


def prefer(
    tx: Transaction, vacancy: Vacancy, places: Sequence[Row], shares: Sequence[tuple[str, str, int, int]]
) -> dict[str, Preference]:
    """The jobs that go first because of what the worker ran last, by their ids. `places` are the first of each lane."""
    preferred: dict[str, Preference] = {}
    known = {place[ID] for place in places}
    for resource, affinity in vacancy.affinities.items():
        lanes = [(share[1], share[2]) for share in shares if share[0] == resource]
        of_resource = [place for place in places if place[RESOURCE] == resource]
        if not lanes or not of_resource:
            continue
        priority = max(place[PRIORITY] for place in of_resource)
        switching = [place for place in of_resource if place[PRIORITY] == priority and place[AFFINITY] != affinity.last]
        if not switching:
            continue
        waited_s = _longest_wait_s(tx, switching, vacancy.affinity_terms)
        more = preferred_more(affinity, vacancy.affinity_terms, waited_s)
        over = min(switching, key=in_priority)[ID]
        for type_, count in lanes if more else ():
            rows = tx.rows(
                _SAME, resource=resource, type=type_, priority=priority, affinity=affinity.last, count=min(more, count)
            )
            for row in rows:
                preferred[row[ID]] = Preference(row, over, affinity, row[ID] not in known)
    return preferred


def _longest_wait_s(tx: Transaction, others: Sequence[Row], terms: AffinityTerms) -> float:
    """How long one of these jobs has waited for a slot, exactly where it matters."""
    made_ago_s = max((tx.now - tx.instant(place[CREATED_AT])).total_seconds() for place in others)
    if made_ago_s <= terms.wait_s:
        return made_ago_s
    (since,) = tx.rows(
        f"SELECT min({READY_SINCE.format(job='')}) FROM jobs WHERE id IN :ids", ids=[place[ID] for place in others]
    )
    return (tx.now - tx.instant(since[0])).total_seconds()


def tell_preferred(tx: Transaction, vacancy: Vacancy, preferred: Sequence[Preference]) -> None:
    """Notes for the job that would have been next who was preferred, and why."""
    if preferred:
        first = preferred[0]
        tx.record(
            events.JOB_PASSED_BY,
            job_id=first.over,
            worker_id=vacancy.worker_id,
            preferred=first.row[ID],
            affinity=first.affinity.last,
            run=first.affinity.run + len(preferred),
            most=vacancy.affinity_terms.run,
            wait_s=vacancy.affinity_terms.wait_s,
        )


def count_switches(tx: Transaction, vacancy: Vacancy, claims: Sequence[Claim]) -> None:
    """Counts how often workers went on with an affinity, and how often they changed it."""
    if not any(claim.work.affinity for claim in claims):
        return
    after = followed(vacancy.affinities, claims)
    resources = sorted({*after.kept, *after.switches})
    if resources:
        tx.execute(
            "INSERT INTO affinity_counts (resource, kept, switches) SELECT r.resource, r.kept, r.switches "
            "FROM rows(:rows; resource text, kept int, switches int) AS r WHERE true ON CONFLICT (resource) "
            "DO UPDATE SET kept = affinity_counts.kept + excluded.kept, "
            "switches = affinity_counts.switches + excluded.switches",
            rows=[(resource, after.kept.get(resource, 0), after.switches.get(resource, 0)) for resource in resources],
        )
