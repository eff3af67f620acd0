"""Settle: a worker gives back its leases with their outcomes.

Guards LEASE-03: only who still holds the lease can end the run; anyone else's result is kept as evidence and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from holdbeat.domain import events
from holdbeat.domain.lease import Settlement
from holdbeat.domain.params import dumps
from holdbeat.domain.reservation import ReservationOutcome
from holdbeat.domain.run import ErrorKind, RunStatus
from holdbeat.store.reads.rows import JOB, STATUS, job_of
from holdbeat.store.running.end_runs import Ending, end_runs, lock_groups_and_schedules
from holdbeat.store.topics import Topic
from holdbeat.store.transaction import Transaction
from holdbeat.store.webhooks.outbox import SUBSCRIPTIONS, Outbox
from holdbeat.store.work import Coalesced

_EVIDENCE_MAX = 2000


_HELD = (
    "SELECT l.id, l.worker_id, l.fence, j.id, j.status, j.cancel_reason, j.webhook_url, j.group_id, j.schedule_id "
    "FROM leases l JOIN jobs j ON j.id = l.job_id WHERE l.id IN :ids ORDER BY l.id FOR UPDATE"
)


class Settled(StrEnum):
    """What became of a Settlement."""

    ACCEPTED = "accepted"
    STALE = "stale"


def _settle_many(tx: Transaction, batches: list[Sequence[Settlement]]) -> list[list[Settled] | Exception]:
    """Ends runs and direct requests whose leases are still held by the worker that reports them.

    Run, job, retry or verdict, group step, schedule plan, deliveries and events are one transaction (RET-03). A
    result without its lease is answered STALE, recorded as `lease.stale_result`, and changes nothing.
    """
    settlements = [settlement for batch in batches for settlement in batch]
    ids = [settlement.lease_id for settlement in settlements]
    if tx.dialect == "postgres":
        company = [(s.group_id, s.schedule_id) for s in settlements]
        lock_groups_and_schedules(tx, (group for group, _ in company), (schedule for _, schedule in company))
    rows, subscriptions = tx.all_rows((_HELD, {"ids": ids}), (SUBSCRIPTIONS, {"yes": True}))
    held = {row[0]: row for row in rows}
    direct = _held_reservations(tx, [s for s in settlements if s.lease_id not in held])
    endings = []
    verdicts = {}
    whole: list[Ending] = []
    for settlement in settlements:
        run_id, worker_id, outcome = settlement.lease_id, settlement.worker_id, settlement.outcome
        row = held.pop(run_id, None)
        if row is not None and row[1] == worker_id and row[2] == settlement.fence:
            _, _, _, job_id, status, reason, url, group_id, schedule_id = row
            ending = Ending(run_id, worker_id, outcome, job_id, STATUS[status], reason, url, group_id, schedule_id)
            endings.append(ending)
            if schedule_id is not None or outcome.status is RunStatus.FAILED:
                whole.append(ending)
        elif run_id in direct:
            _end_direct(tx, settlement)
        else:
            _keep_evidence(tx, settlement)
            verdicts[id(settlement)] = Settled.STALE
    if whole:
        jobs = tx.rows(f"SELECT {JOB} FROM jobs WHERE id IN :ids", ids=[ending.job_id for ending in whole])
        by_id = {row[0]: row for row in jobs}
        for ending in whole:
            ending.job = job_of(tx, by_id[ending.job_id])
    end_runs(tx, endings, Outbox(tx, subscriptions))
    if not verdicts:
        return [[Settled.ACCEPTED] * len(batch) for batch in batches]
    return [[verdicts.get(id(settlement), Settled.ACCEPTED) for settlement in batch] for batch in batches]


settle: Coalesced[Sequence[Settlement], list[Settled]] = Coalesced(_settle_many)


def _held_reservations(tx: Transaction, settlements: Sequence[Settlement]) -> set[str]:
    if not settlements:
        return set()
    rows = tx.rows(
        "SELECT id, worker_id, fence FROM leases WHERE id IN :ids AND reservation_id IS NOT NULL "
        "ORDER BY id FOR UPDATE",
        ids=[settlement.lease_id for settlement in settlements],
    )
    holders = {row[0]: (row[1], row[2]) for row in rows}
    return {s.lease_id for s in settlements if holders.get(s.lease_id) == (s.worker_id, s.fence)}


def _end_direct(tx: Transaction, settlement: Settlement) -> None:
    """Closes a direct request; one that was cancelled while it ran stays so (DIR-04: nobody tries again)."""
    outcome = settlement.outcome
    cancelled = outcome.error_kind is ErrorKind.CANCELLED
    ended_as = ReservationOutcome.CANCELLED if cancelled else ReservationOutcome(outcome.status)
    tx.execute("DELETE FROM leases WHERE id = :id", id=settlement.lease_id)
    tx.wake(Topic.DIRECT, Topic.SLOTS)
    released = tx.rows(
        "UPDATE direct_reservations SET status = 'RELEASED', finished_at = :now, outcome = :outcome, error = :error, "
        "error_kind = :kind, result = :result WHERE id = :id AND status = 'ACTIVE' RETURNING id",
        id=settlement.lease_id,
        now=tx.now,
        outcome=ended_as,
        error=outcome.error,
        kind=outcome.error_kind,
        result=None if outcome.result is None else dumps(outcome.result),
    )
    if released:
        tx.record(
            events.RESERVATION_RELEASED,
            worker_id=settlement.worker_id,
            reservation_id=settlement.lease_id,
            outcome=ended_as,
            error_kind=outcome.error_kind,
        )


def _keep_evidence(tx: Transaction, settlement: Settlement) -> None:
    outcome = settlement.outcome
    row = tx.one("SELECT job_id FROM job_runs WHERE id = :id", id=settlement.lease_id)
    tx.record(
        events.STALE_RESULT,
        job_id=row[0] if row else None,
        run_id=settlement.lease_id,
        worker_id=settlement.worker_id,
        fence=settlement.fence,
        status=outcome.status,
        error=outcome.error[:_EVIDENCE_MAX] if outcome.error else None,
        error_kind=outcome.error_kind,
        result=dumps(outcome.result)[:_EVIDENCE_MAX] if outcome.result is not None else None,
    )
