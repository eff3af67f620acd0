"""A program's own Policy in a claim: asked about each job that has room in every limit (LIM-03)."""

from __future__ import annotations

import logging

from holdbeat.domain.policy import Policy, Work
from holdbeat.store.transaction import Row, Transaction

log = logging.getLogger("holdbeat.store")

_RUNNING = "SELECT type, resource, partition, weight FROM leases ORDER BY id"


class PolicyView:
    """The answers of a Policy in one claim, while no other claim with a Policy is under way."""

    def __init__(self, tx: Transaction, policy: Policy, *, locked: bool = True) -> None:
        if locked:
            tx.lock_pools(["policy"])
        self._policy = policy
        self._now = tx.now
        self._running = [Work(*row) for row in tx.rows(_RUNNING)]
        self._refused: set[Work] = set()

    def permits(self, work: Work) -> bool:
        """Whether it may start; a Policy that fails permits nothing. About jobs that are alike it is asked once."""
        if work in self._refused:
            return False
        try:
            permits = bool(self._policy.may_start(work, tuple(self._running), self._now))
        except Exception:
            log.exception("the policy %s failed, so %s does not start", type(self._policy).__name__, work.type)
            permits = False
        if not permits:
            self._refused.add(work)
        return permits

    def start(self, work: Work) -> None:
        self._running.append(Work(work.type, work.resource, work.partition, work.weight))
        self._refused.clear()


def work_of(place: Row) -> Work:
    """A row of PLACE as a Policy sees it."""
    priority, _, _, _, resource, type_, partition, weight, affinity = place[:9]
    return Work(type_, resource, partition, weight, priority, affinity)
