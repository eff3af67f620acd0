"""Holds every claim of a simulation against the model of the queue: the same jobs, in the same order.

The model is built from the rows at the instant of the claim. A delayed job that was found due stays ready when the wall
clock goes back behind its time afterwards; none may become ready before. Direct requests are not part of the model:
while one waits for a slot, and where a slot is free for it, only the checker judges. Nor is expiry, whose consequences
a claim writes before it chooses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from holdbeat.domain.job import Hold, JobStatus
from holdbeat.domain.limit import Limits
from holdbeat.store.running import settle_and_claim
from holdbeat.store.running.claim import Filled, Vacancy, fill
from holdbeat.store.transaction import Transaction
from tests.model.queue_model import ModelJob, QueueModel

_QUEUED = (
    "SELECT id, type, resource, priority, position, created_at, not_before, hold, partition, weight FROM jobs "
    "WHERE status = 'QUEUED'"
)
_LEASED = "SELECT id, type, resource, acquired_at, partition, weight FROM leases"
_READY = "SELECT id FROM jobs WHERE status = 'QUEUED' AND hold = 0"


def model_of(tx: Transaction, limits: Limits) -> QueueModel:
    """The queue and the leases as they are."""
    model = QueueModel(limits)
    for id_, type_, resource, priority, position, created_at, not_before, hold, partition, weight in tx.rows(_QUEUED):
        model.jobs[id_] = ModelJob(
            id_, type_, resource, priority, position, tx.instant(created_at), 0,
            None if hold == Hold.READY else tx.time(not_before), None, None, partition, weight,
            gated=hold not in (Hold.READY, Hold.DELAYED),
        )  # fmt: skip
    for id_, type_, resource, acquired_at, partition, weight in tx.rows(_LEASED):
        model.jobs[id_] = ModelJob(
            id_, type_, resource, 0, 0, tx.instant(acquired_at), 0, None, None, None, partition, weight,
            JobStatus.RUNNING, leased=True,
        )  # fmt: skip
    return model


def judged_claims(limits: Limits, differs: Callable[[str], None]) -> Any:
    """Compares each claim while it is in force; `differs` is told what the model would have done."""

    def judged(tx: Transaction, vacancy: Vacancy) -> Filled:
        waiting = tx.one("SELECT 1 FROM direct_reservations WHERE status = 'ACTIVE' AND granted_at IS NULL LIMIT 1")
        expired = tx.one("SELECT 1 FROM jobs WHERE status = 'QUEUED' AND expires_at <= :now LIMIT 1", now=tx.now)
        model = None if waiting or expired else model_of(tx, limits)
        rows = tx.rows(
            "SELECT id, not_before FROM jobs WHERE status = 'QUEUED' AND hold = :delayed", delayed=Hold.DELAYED
        )
        not_due = {job_id for job_id, not_before in rows if tx.instant(not_before) > tx.now}
        filled = fill(tx, vacancy)
        if not_due:
            early = not_due.intersection(row[0] for row in tx.rows(_READY))
            if early:
                differs(f"{vacancy.worker_id} made {sorted(early)} ready before their time")
        if model is not None:
            expected = model.next_for(len(vacancy.slots), tuple(vacancy.types), tx.now)
            claimed = [claim.job.id for claim in filled.claims if claim.job is not None]
            if claimed != expected:
                differs(f"{vacancy.worker_id} claimed {claimed}, the model {expected}")
        return filled

    return mock.patch.object(settle_and_claim, "fill", judged)
